"""Builds of Redis and Valkey whose Lua has a known vulnerability: by their version, which is all that INFO says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delayq.cli.doctor.findings import Finding, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CVE: Final = "CVE-2025-49844"
FIXED: Final[Mapping[str, Mapping[tuple[int, int], int]]] = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4, (9, 0): 0},
}
"""Release line → the first patch release with the fix. Older lines in between have none, newer lines always had it."""


def lua(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Warn of a build that may let a user who runs scripts take over the server. Every delayq process runs scripts."""
    name = "Valkey" if "valkey_version" in facts else "Redis"
    found = facts.get("valkey_version", facts.get("redis_version", ""))
    number = re.match(r"(\d+)\.(\d+)\.(\d+)", found)
    if number is None or not _before_fix(name, *map(int, number.groups())):
        return
    first = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in FIXED[name].items())
    yield warning(
        "lua",
        f"{name} {found} may have {CVE}: a user who may run scripts can run code on the server; fixed in {first}",
        "upgrade; distributions fix it without a new version number: look for it in the package's changelog "
        "(apt changelog redis-server, rpm -q --changelog redis), or ask the provider",
    )


def _before_fix(name: str, major: int, minor: int, patch: int) -> bool:
    lines = FIXED[name]
    return (major, minor) <= max(lines) and patch < lines.get((major, minor), patch + 1)
