"""Queries to Sentinels about a master, and to servers about their role. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.connection.place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.round_trip import Command

ROLE: Final = ("ROLE",)
NOT_A_MASTER: Final = "its ROLE is not master; a failover may be in progress, call again"
"""Why a call failed: a replica refuses writes. During a failover, Sentinels can still name the
former master; a later call finds the new one."""


@dataclass(frozen=True, slots=True)
class Master:
    """The master as one Sentinel reports it."""

    place: Place
    epoch: int | None  # of the failover that made it the master; None when the Sentinel does not report it


def queries(name: str) -> tuple[Command, ...]:
    """Return the commands. After a failover, the first one names the new master before the second does."""
    return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name)


def parse(replies: Sequence[Any]) -> Master | None:
    """Parse the replies to queries(); None when the Sentinel does not know the master, or refuses."""
    address, about = replies
    if not isinstance(address, list) or len(address) != 2:  # noqa: PLR2004 -- host and port
        return None
    host, port = address
    facts = dict(zip(about[::2], about[1::2], strict=False)) if isinstance(about, list) else {}
    epoch = facts.get(b"config-epoch")
    return Master(Place(host.decode(), int(port)), None if epoch is None else int(epoch))


def is_master(reply: object) -> bool:
    """Whether the reply to ROLE is that of a master."""
    return isinstance(reply, list) and bool(reply) and reply[0] == b"master"
