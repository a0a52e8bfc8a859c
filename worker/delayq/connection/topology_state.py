"""Cached view of the topology: which server is the master, what to ask, and how to read the answers. No I/O.

Servers and Sentinels on the wrong side of a partition go on telling what was true before. What they say carries an
epoch, which grows with each fail-over: an older view is believed only when there is no newer one to be had.
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
    from delayq.connection.redirects import Redirect
    from delayq.connection.round_trip import Command
    from delayq.connection.sentinels import Master
    from delayq.connection.slots import SlotMap

# Without an answer, the next is asked as well; behind a sure one, the others are waited for.
NEXT_SECONDS = 0.2
REST_SECONDS = 0.1  # between one round of questions and the next
LOOK_SECONDS = 2.0  # between looks while nothing is wrong, where a master may answer that is none any more
MOST_ASKED = 8  # of the nodes that are known, and of those that were named; another time it is others


class SentinelTopology:
    """A master and its Sentinels. All of them are asked: one that missed a fail-over is as sure as the others.

    Only whole values are replaced, here and in ClusterTopology: threads may read while one of them writes.
    """

    def __init__(self, address: Address) -> None:
        """Know nothing."""
        self.questions: tuple[Command, ...] = sentinels.questions(
            address.master_name
        )  # for each that is asked
        self.why = ""  # of the last who could not tell
        self._asked = address.sentinels
        self._place: Place | None = None
        self._epoch = 0
        self._said: dict[Place, Master] = {}  # in this round, by Sentinel

    def asked(self) -> list[Address]:
        """Return whom to ask, in this order."""
        return list(self._asked)

    def begin(self) -> None:
        """Forget what was said in the last round."""
        self._said, self.why = {}, ""

    def learn(self, place: Place, replies: Sequence[Any]) -> bool:
        """Take note of an answer; returns whether it is sure, so that others need not be waited for much longer.

        A new master is accepted at once: a Sentinel reports only fail-overs that have happened.
        """
        master = sentinels.read(replies)
        if master is None:
            refused = isinstance(replies[0], Exception)
            said = str(translated(replies[0], str(place), "SENTINEL")) if refused else "it has no such master"
            self.why = f"Sentinel {place}: {said}"
            return False
        self._said = {**self._said, place: master}
        if self._place is None or (master.epoch or 0) > self._epoch:
            self._place, self._epoch = master.place, master.epoch or 0
        return master.epoch is None or master.epoch >= self._epoch

    def settle(self) -> None:
        """End the round. Believe the newest view, and of several the one that most share.

        One that is older than what was known is believed when most Sentinels share such: they were set up anew. A few
        may be cut off from the others.
        """
        epochs = [master.epoch for master in self._said.values() if master.epoch is not None]
        newest = max(epochs, default=None)
        if newest is not None and newest < self._epoch and 2 * len(epochs) <= len(self._asked):
            return
        named = Counter(master.place for master in self._said.values() if master.epoch == newest)
        if named:
            self._place = max(named, key=lambda place: (named[place], place == self._place))
            self._epoch = self._epoch if newest is None else newest

    def holder(self, slot: int) -> Place | None:  # noqa: ARG002 -- it has all of them
        """Return the presumed master of a slot; None if unknown."""
        return self._place

    def masters(self) -> frozenset[Place]:
        """Return everybody who is taken for a master."""
        return frozenset() if self._place is None else frozenset({self._place})

    def known(self) -> object:
        """Return all that is known, to be compared."""
        return self._place


class ClusterTopology:
    """A Cluster's slots."""

    questions: tuple[Command, ...] = slots.QUESTIONS

    def __init__(self, address: Address) -> None:
        """Know nothing but some nodes to ask."""
        self.why = ""
        self._address = address
        self.map: SlotMap = slots.UNKNOWN
        self._unsure: list[SlotMap] = []
        self._sure = False  # a server was, in this round

    def asked(self) -> list[Address]:
        """Any nodes, others each time; those that were named at first come last."""
        named = {place for place in self._address.places if place not in self.map.nodes}
        return [self._address.at(place) for place in (*_some(self.map.nodes), *_some(named))]

    def begin(self) -> None:
        self._unsure, self._sure, self.why = [], False, ""

    def learn(self, place: Place, replies: Sequence[Any]) -> bool:
        found = slots.read(replies, place)
        if found is None:
            error = replies[1] if isinstance(replies[1], Exception) else Exception("not a Cluster")
            self.why = f"{place}: {translated(error, str(place), 'CLUSTER SLOTS')}"
            return False
        if not found.healthy or found.epoch < self.map.epoch:
            self._unsure.append(found)
            return False
        self.map, self._sure = found, True
        return True

    def settle(self) -> None:
        if self._unsure and not self._sure:
            self.map = max(self._unsure, key=lambda found: (found.healthy, found.epoch))

    def moved(self, said: Redirect) -> None:
        """Believe a node that has handed over a slot."""
        self.map = self.map.moved(said.slot, said.place)

    def holder(self, slot: int) -> Place | None:
        return self.map.holders[slot]

    def masters(self) -> frozenset[Place]:
        return self.map.masters

    def known(self) -> object:
        return self.map.holders


def _some(places: Collection[Place]) -> list[Place]:
    return random.sample(sorted(places), min(MOST_ASKED, len(places)))


Topology = SentinelTopology | ClusterTopology


def topology_of(address: Address) -> Topology:
    """Return an empty book; not for a single server, of which there is nothing to learn."""
    return ClusterTopology(address) if address.apart else SentinelTopology(address)


def no_master(address: Address, topology: Topology, error: DelayQError | None) -> DelayQError:
    """Return the error for an unknown master; `error` is of the last server that was asked."""
    where = address.where
    if isinstance(topology, ClusterTopology) and topology.map is not slots.UNKNOWN:
        return Unavailable(where, "CLUSTERDOWN no node serves the slot", answered=True, outage="cluster_down")
    if not topology.why and isinstance(error, Unavailable):
        return Unavailable(where, error.why, outage=error.outage)
    why = topology.why or str(error or "no server names a master")
    return Unavailable(where, why, answered=bool(topology.why), outage="no_master")
