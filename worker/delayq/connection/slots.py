"""The slots of each node of a Cluster, from CLUSTER SLOTS. No I/O."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from delayq.connection.place import Place
from delayq.protocol.keys import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUERIES: Final = (("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))
"""Sent to one node. If its ACL denies the first, parse() assumes epoch 0 and a healthy Cluster."""


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The view that one node has of the Cluster."""

    holders: tuple[Place | None, ...]  # by slot
    nodes: frozenset[Place] = frozenset()  # masters and replicas
    epoch: int = 0  # the newest that the node has seen; each failover and slot migration increments it
    healthy: bool = True  # whether the node reports the Cluster as served

    @property
    def masters(self) -> frozenset[Place]:
        """The servers that hold slots."""
        return frozenset(place for place in self.holders if place is not None)

    def with_holder(self, slot: int, place: Place) -> SlotMap:
        """Return a copy in which another server holds one slot."""
        holders = (*self.holders[:slot], place, *self.holders[slot + 1 :])
        return replace(self, holders=holders, nodes=self.nodes | {place})


UNKNOWN: Final = SlotMap((None,) * SLOTS, healthy=False)
"""Before the first query."""


def parse(replies: Sequence[Any], node: Place) -> SlotMap | None:
    """Parse the replies of `node` to QUERIES; None when it refuses CLUSTER SLOTS."""
    info, ranges = replies
    if not isinstance(ranges, list):
        return None
    holders: list[Place | None] = [None] * SLOTS
    nodes: set[Place] = set()
    for first, last, *servers in ranges:
        places = list(_places(servers, node))
        nodes.update(places)
        if places:
            holders[first : last + 1] = [places[0]] * (last + 1 - first)
    text = info.decode(errors="replace") if isinstance(info, bytes) else ""
    epoch = re.search(r"^cluster_current_epoch:(\d+)", text, re.MULTILINE)
    healthy = not re.search(r"^cluster_state:fail", text, re.MULTILINE)
    return SlotMap(tuple(holders), frozenset(nodes), int(epoch[1]) if epoch else 0, healthy)


def _places(servers: Sequence[Any], node: Place) -> Iterator[Place]:
    """Yield the servers of a range, the master first. An empty host means the node that replied.

    `?` means an unknown host name; the address may be in the metadata that follows.
    """
    for host, port, *more in servers:
        name = host.decode() if host else node.host
        if name == "?":
            about = more[1] if len(more) > 1 and isinstance(more[1], list) else []
            facts = dict(zip(about[::2], about[1::2], strict=False))
            name = facts.get(b"ip", b"").decode() or node.host
        yield Place(name, port)


def slot_of(key: str) -> int:
    """Return a key's slot: CRC16 of its hash tag, or of the whole key."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return binascii.crc_hqx((tag if opened and closed and tag else key).encode(), 0) % SLOTS
