"""Whether Redis keeps what it is given: from what INFO and CONFIG answer to the risks there are. Asks nobody itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.contract.metrics import DurabilityRisk

QUESTIONS: Final = (("INFO",), ("CONFIG", "GET", "appendfsync"))
"""Read-only, and constant in the number of tasks; a user may lack the right to either."""


def info(reply: object) -> dict[str, str]:
    """Return what INFO says; nothing when it was refused."""
    if not isinstance(reply, bytes):
        return {}
    return dict(re.findall(r"^(\w+):(.*?)\r?$", reply.decode(errors="replace"), re.MULTILINE))


def setting(reply: object) -> str:
    """Return the value CONFIG GET answers with; nothing when it was refused, as in many a hosted Redis."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else ""


def risks(facts: Mapping[str, str], appendfsync: str) -> frozenset[DurabilityRisk]:
    """Return every way in which an accepted task may be lost; `unknown` where it cannot be told."""
    return frozenset(_risks(facts, appendfsync))


def _risks(facts: Mapping[str, str], appendfsync: str) -> Iterator[DurabilityRisk]:
    if not facts:
        yield "unknown"
        return
    # The volatile-… policies take keys that expire, and of ours only `leader` does: a scanner leads again, no more.
    if facts.get("maxmemory_policy", "").startswith("allkeys"):
        yield "evicts"
    if facts.get("aof_enabled") != "1":
        yield "append_only_off"
        return
    if facts.get("aof_last_write_status", "ok") != "ok":
        yield "append_only_failing"
    if appendfsync == "no":
        yield "fsync_off"
    if not appendfsync:
        yield "unknown"
