"""Which node of a Cluster holds which slot, read from CLUSTER SLOTS. Pure."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from delayq.connection.place import Place
from delayq.protocol.keys import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUESTIONS: Final = (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
"""What a node is asked. Without a right to the first, its view counts as one of the present."""


@dataclass(frozen=True, slots=True)
class SlotMap:
    """One node's view of the Cluster."""

    holders: tuple[Place | None, ...]  # by slot
    nodes: frozenset[Place] = frozenset()  # masters and replicas
    epoch: int = 0  # the newest the node has heard of: it grows with each fail-over and migration
    healthy: bool = True  # whether the node finds that enough of the others are there

    @property
    def masters(self) -> frozenset[Place]:
        """The servers that hold slots."""
        return frozenset(place for place in self.holders if place is not None)

    def moved(self, slot: int, place: Place) -> SlotMap:
        """Return the same with one slot elsewhere."""
        holders = (*self.holders[:slot], place, *self.holders[slot + 1 :])
        return replace(self, holders=holders, nodes=self.nodes | {place})


UNKNOWN: Final = SlotMap((None,) * SLOTS, healthy=False)
"""Before anybody was asked."""


def read(replies: Sequence[Any], asked: Place) -> SlotMap | None:
    """Read the replies of the node `asked` to QUESTIONS; None when it does not tell its slots."""
    info, ranges = replies
    if not isinstance(ranges, list):
        return None
    holders: list[Place | None] = [None] * SLOTS
    nodes: set[Place] = set()
    for first, last, *servers in ranges:
        places = list(_places(servers, asked))
        nodes.update(places)
        if places:
            holders[first : last + 1] = [places[0]] * (last + 1 - first)
    text = info.decode(errors="replace") if isinstance(info, bytes) else ""
    epoch = re.search(r"^cluster_current_epoch:(\d+)", text, re.MULTILINE)
    healthy = not re.search(r"^cluster_state:fail", text, re.MULTILINE)
    return SlotMap(tuple(holders), frozenset(nodes), int(epoch[1]) if epoch else 0, healthy)


def _places(servers: Sequence[Any], asked: Place) -> Iterator[Place]:
    """Master first. A node that does not know its own host, or is not to tell, means the one that was asked.

    `?` stands for a host name that was not announced; the address is among what follows, then.
    """
    for host, port, *more in servers:
        name = host.decode() if host else asked.host
        if name == "?":
            about = more[1] if len(more) > 1 and isinstance(more[1], list) else []
            facts = dict(zip(about[::2], about[1::2], strict=False))
            name = facts.get(b"ip", b"").decode() or asked.host
        yield Place(name, port)


def slot_of(key: str) -> int:
    """Return a key's slot: CRC16 of its hash tag, or of all of it."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return binascii.crc_hqx((tag if opened and closed and tag else key).encode(), 0) % SLOTS
