"""Finds the current master, blocking: one thread asks, all threads use its answers. topology_state.py stores them."""

from __future__ import annotations

import math
import time
from threading import Lock
from typing import TYPE_CHECKING, Final

from delayq.connection import forks
from delayq.connection.deadline import Deadline
from delayq.connection.pool import Wire
from delayq.connection.topology_state import (
    LOOK_SECONDS,
    NEXT_SECONDS,
    REST_SECONDS,
    ClusterTopology,
    no_master,
    topology_of,
)
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.redirects import Redirect
    from delayq.connection.topology_state import TopologyState

ANSWER_SECONDS: Final = 1.0  # that each is waited for, one after the other
LOOK_SHARE: Final = 20  # such looks take a twentieth of the time at most, even where Sentinels do not answer


class BlockingDiscovery:
    """What one SyncConnection knows of its topology, and the finding out."""

    def __init__(self, address: Address, news: Callable[[], None] = lambda: None) -> None:
        """Send nothing until the first call; `news` is called when an answer differs."""
        self.address, self._news = address, news
        self.topology = None if address.kind == "standalone" else topology_of(address)
        self._told = self.topology and self.topology.known()
        self._rounds = 0
        self._asked_at = self._look_at = -math.inf  # monotonic seconds
        self._doubted: set[Place] = set()
        self._error: DelayQError | None = None  # of the last one asked in vain
        self.forked()
        forks.remember(self)

    def forked(self) -> None:
        """Ask on connections of our own; one caller at a time."""
        self._lock = Lock()
        self._kept: dict[Address, Wire] = {}

    def holder(self, slot: int = 0, deadline: Deadline | None = None) -> Place:
        """Return the master, of a slot; Unavailable if unknown."""
        if self.topology is None:
            return self.address.places[0]
        known = self.topology.holder(slot)
        if known is None or known in self._doubted:
            self.ask(deadline)
        elif not self.address.apart and time.monotonic() > self._look_at:
            self._look(deadline)
        place = self.topology.holder(slot)
        if place is None:
            raise no_master(self.address, self.topology, self._error)
        return place

    def doubt(self, place: Place) -> None:
        """It may be a master no more: ask before the next call that would go there. Others go on."""
        self._doubted.add(place)

    def learn(self, said: Redirect) -> None:
        """Believe a node that has handed over a slot, and find out in time what else it has."""
        if isinstance(self.topology, ClusterTopology):
            before = self.topology.holder(said.slot)
            self.topology.moved(said)
            if before is not None:
                self.doubt(before)

    def ask(self, deadline: Deadline | None = None) -> None:
        """Ask anew, unless another thread is asking or just has."""
        if self.topology is None:
            return
        deadline = deadline or Deadline(self.address.timeout_seconds)
        rounds, lock = self._rounds, self._lock
        if not lock.acquire(timeout=deadline.left):
            return
        try:
            if self._rounds == rounds:
                time.sleep(max(0.0, self._asked_at + REST_SECONDS - time.monotonic()))
                self._ask(self.topology, deadline)
        finally:
            lock.release()

    def _look(self, deadline: Deadline | None) -> None:
        """Ask, unless another caller does; no failure is known, so the others need not wait."""
        lock = self._lock
        if self.topology is not None and lock.acquire(blocking=False):
            try:
                self._ask(self.topology, deadline or Deadline(self.address.timeout_seconds))
            finally:
                lock.release()

    def _ask(self, topology: TopologyState, deadline: Deadline) -> None:
        began = time.monotonic()
        doubted, self._doubted = self._doubted, set()
        topology.begin()
        if self.address.apart:
            self._some_answers(topology, doubted, deadline)
        else:
            self._most_answer(topology, deadline)
        topology.settle()
        self._rounds += 1
        self._asked_at = time.monotonic()
        self._look_at = self._asked_at + max(LOOK_SECONDS, LOOK_SHARE * (self._asked_at - began))
        before, self._told = self._told, topology.known()
        if before != self._told:
            self._news()

    def _some_answers(self, topology: TopologyState, doubted: set[Place], deadline: Deadline) -> None:
        """Ask nodes of a Cluster one after the other, until one is sure.

        Who did not answer others will hardly answer us; it takes a second to find out.
        """
        for address in sorted(topology.asked(), key=lambda address: address.places[0] in doubted):
            if deadline.over:
                return
            line = Wire(address)
            patience = deadline.within(ANSWER_SECONDS)
            sure = self._asked(line, topology, patience) and self._answers(line, topology, patience)
            line.drop()
            if sure:
                return

    def _most_answer(self, topology: TopologyState, deadline: Deadline) -> None:
        """Ask all Sentinels: those to whom a connection is open at once, then the others.

        Once one is sure, each of the others has a moment only.
        """
        known = {address: line for address in topology.asked() if (line := self._kept.pop(address, None))}
        asked = [
            line for line in known.values() if self._asked(line, topology, deadline.within(NEXT_SECONDS))
        ]
        late = [line for line in asked if not line.readable(min(NEXT_SECONDS, deadline.left))]
        sure = [self._heard(line, topology, deadline) for line in asked if line not in late]
        for line in [Wire(address) for address in topology.asked() if address not in known]:
            patience = deadline.within(NEXT_SECONDS if any(sure) else ANSWER_SECONDS)
            sure.append(
                not deadline.over
                and self._asked(line, topology, patience)
                and self._heard(line, topology, patience)
            )
        for line in late:
            patience = deadline.within(NEXT_SECONDS if any(sure) else ANSWER_SECONDS)
            sure.append(self._heard(line, topology, patience))

    def _heard(self, line: Wire, topology: TopologyState, deadline: Deadline) -> bool:
        """Keep the connection to a Sentinel that answers: it is asked every other second."""
        sure = self._answers(line, topology, deadline)
        if line.connected:
            self._kept[line.address] = line
        return sure

    def _asked(self, line: Wire, topology: TopologyState, deadline: Deadline) -> bool:
        try:
            line.ready(deadline)
            line.write(topology.questions, deadline)
        except DelayQError as error:
            self._error = error
            return False
        return True

    def _answers(self, line: Wire, topology: TopologyState, deadline: Deadline) -> bool:
        try:
            return topology.learn(line.address.places[0], line.read(len(topology.questions), deadline))
        except DelayQError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 -- what cannot be read is no answer
            line.drop()
            why = f"an answer that cannot be read: {error!r:.200}"
            self._error = Unavailable(line.address.where, why)
        return False

    def close(self) -> None:
        """Close what is open to Sentinels."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1].drop()
