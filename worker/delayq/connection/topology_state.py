"""Cached view of the topology: which server is the master, what to query, and how to read the replies. No I/O.

Servers and Sentinels on the minority side of a partition report an outdated view. Each view has an epoch, which each
failover increments: an older view is used only when there is no newer one.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from delayq.connection import sentinels, slots
from delayq.connection.round_trip import translated
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.round_trip import Command
    from delayq.connection.routing import Redirect
    from delayq.connection.sentinels import Master
    from delayq.connection.slots import SlotMap

# Without a reply for this long, query the next server too. After a certain reply, wait this long for the others.
NEXT_SERVER_SECONDS = 0.2
QUERY_PAUSE_SECONDS = 0.1  # between one round of queries and the next
REFRESH_SECONDS = 2.0  # between periodic queries, with Sentinels: a former master may still answer
MAX_CANDIDATES = 8  # of the known nodes, and of the configured ones; a random choice each time


class SentinelTopology:
    """A master and its Sentinels. All are queried: one that missed a failover replies like the others.

    Attributes are replaced, never changed in place, here and in ClusterTopology: threads read while one of them writes.
    """

    def __init__(self, address: Address) -> None:
        """Start without a master."""
        self.queries: tuple[Command, ...] = sentinels.queries(address.master_name)
        self.why = ""  # the last refusal
        self._sentinels = address.sentinels
        self._place: Place | None = None
        self._epoch = 0
        self._replies: dict[Place, Master] = {}  # of this round, by Sentinel

    def candidates(self) -> list[Address]:
        """Return the servers to query, in this order."""
        return list(self._sentinels)

    def begin_round(self) -> None:
        """Discard the replies of the last round."""
        self._replies, self.why = {}, ""

    def add_reply(self, place: Place, replies: Sequence[Any]) -> bool:
        """Add the replies of one server. Returns whether they are certain, so that others are awaited only briefly.

        A new master is accepted at once: a Sentinel reports only failovers that have happened.
        """
        master = sentinels.parse(replies)
        if master is None:
            refused = isinstance(replies[0], Exception)
            refusal = (
                str(translated(replies[0], str(place), "SENTINEL"))
                if refused
                else "it has no such master; check masterName"
            )
            self.why = f"Sentinel {place}: {refusal}"
            return False
        self._replies = {**self._replies, place: master}
        if self._place is None or (master.epoch or 0) > self._epoch:
            self._place, self._epoch = master.place, master.epoch or 0
        return master.epoch is None or master.epoch >= self._epoch

    def end_round(self) -> None:
        """End the round. The newest view counts; of several, the one that most Sentinels share.

        A view that is older than the known one counts when most Sentinels share it, because they were set up anew. A
        minority may be partitioned.
        """
        epochs = [master.epoch for master in self._replies.values() if master.epoch is not None]
        newest = max(epochs, default=None)
        if newest is not None and newest < self._epoch and 2 * len(epochs) <= len(self._sentinels):
            return
        named = Counter(master.place for master in self._replies.values() if master.epoch == newest)
        if named:
            self._place = max(named, key=lambda place: (named[place], place == self._place))
            self._epoch = self._epoch if newest is None else newest

    def holder(self, slot: int) -> Place | None:  # noqa: ARG002 -- one master has all slots
        """Return the presumed master of a slot; None if unknown."""
        return self._place

    def masters(self) -> frozenset[Place]:
        """Return the presumed masters."""
        return frozenset() if self._place is None else frozenset({self._place})

    def snapshot(self) -> object:
        """Return a value that differs when the topology has changed."""
        return self._place


class ClusterTopology:
    """The slots of a Cluster."""

    queries: tuple[Command, ...] = slots.QUERIES

    def __init__(self, address: Address) -> None:
        """Start with the configured nodes."""
        self.why = ""
        self._address = address
        self.map: SlotMap = slots.UNKNOWN
        self._uncertain: list[SlotMap] = []
        self._certain = False  # a reply of this round was certain

    def candidates(self) -> list[Address]:
        """Random nodes: known ones first, then configured ones that are not known."""
        named = {place for place in self._address.places if place not in self.map.nodes}
        return [self._address.at(place) for place in (*_some(self.map.nodes), *_some(named))]

    def begin_round(self) -> None:
        self._uncertain, self._certain, self.why = [], False, ""

    def add_reply(self, place: Place, replies: Sequence[Any]) -> bool:
        found = slots.parse(replies, place)
        if found is None:
            error = replies[1] if isinstance(replies[1], Exception) else Exception("not a Cluster")
            self.why = f"{place}: {translated(error, str(place), 'CLUSTER SLOTS')}"
            return False
        if not found.healthy or found.epoch < self.map.epoch:
            self._uncertain.append(found)
            return False
        self.map, self._certain = found, True
        return True

    def end_round(self) -> None:
        if self._uncertain and not self._certain:
            self.map = max(self._uncertain, key=lambda found: (found.healthy, found.epoch))

    def apply_redirect(self, redirect: Redirect) -> None:
        """Apply a MOVED redirect."""
        self.map = self.map.with_holder(redirect.slot, redirect.place)

    def holder(self, slot: int) -> Place | None:
        return self.map.holders[slot]

    def masters(self) -> frozenset[Place]:
        return self.map.masters

    def snapshot(self) -> object:
        return self.map.holders


def _some(places: Collection[Place]) -> list[Place]:
    return random.sample(sorted(places), min(MAX_CANDIDATES, len(places)))


Topology = SentinelTopology | ClusterTopology


def topology_of(address: Address) -> Topology:
    """Return an empty topology; a standalone server has none."""
    return ClusterTopology(address) if address.is_cluster else SentinelTopology(address)


def no_master(address: Address, topology: Topology, error: DelayQError | None) -> DelayQError:
    """Return the error for an unknown master; `error` is that of the last query that failed."""
    where = address.where
    if isinstance(topology, ClusterTopology) and topology.map is not slots.UNKNOWN:
        return Unavailable(where, "CLUSTERDOWN no node serves the slot", answered=True, outage="cluster_down")
    if not topology.why and isinstance(error, Unavailable):
        return Unavailable(where, error.why, outage=error.outage)
    why = topology.why or str(error or "no server names a master")
    return Unavailable(where, why, answered=bool(topology.why), outage="no_master")
