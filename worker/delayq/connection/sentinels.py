"""What Sentinels say of a master, and servers of themselves. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.connection.place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection.round_trip import Command

ROLE: Final = ("ROLE",)


@dataclass(frozen=True, slots=True)
class Master:
    """The master as one Sentinel knows it."""

    place: Place
    epoch: int | None  # of the fail-over that made it the master; None when the Sentinel does not tell


def questions(name: str) -> tuple[Command, ...]:
    """Return what a Sentinel is asked. It names a new master here before its own table of masters does."""
    return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), ("SENTINEL", "MASTER", name)


def read(replies: Sequence[Any]) -> Master | None:
    """Read the replies to questions(); None when the Sentinel knows no such master, or does not say."""
    address, about = replies
    if not isinstance(address, list) or len(address) != 2:  # noqa: PLR2004 -- host and port
        return None
    host, port = address
    facts = dict(zip(about[::2], about[1::2], strict=False)) if isinstance(about, list) else {}
    epoch = facts.get(b"config-epoch")
    return Master(Place(host.decode(), int(port)), None if epoch is None else int(epoch))


def is_master(reply: object) -> bool:
    """Whether a server that was asked for its ROLE is one."""
    return isinstance(reply, list) and bool(reply) and reply[0] == b"master"
