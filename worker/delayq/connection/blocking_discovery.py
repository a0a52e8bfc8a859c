"""Finds the current master, blocking: one thread asks, all threads use its answers. topology_state.py stores them."""

from __future__ import annotations

import math
import time
from threading import Lock
from typing import TYPE_CHECKING, Final

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
    from delayq.connection.topology_state import Topology

ANSWER_SECONDS: Final = 1.0  # timeout of each server; they are queried one by one until one answer is certain
# Periodic queries take at most a twentieth of the time, even if Sentinels do not answer.
LOOK_SHARE: Final = 20


class BlockingDiscovery:
    """Discovers the topology of one SyncConnection, and stores the result."""

    def __init__(self, address: Address, on_change: Callable[[], None] = lambda: None) -> None:
        """Send nothing until the first call; `on_change` is called when the topology changes."""
        self.address, self._on_change = address, on_change
        self.topology = None if address.kind == "standalone" else topology_of(address)
        self._announced = self.topology and self.topology.known()
        self._rounds = 0
        self._asked_at = self._look_at = -math.inf  # monotonic seconds
        self._doubted: set[Place] = set()
        self._error: DelayQError | None = None  # of the last one asked in vain
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
            self.ask(deadline, waits=False)  # no failure is known
        place = self.topology.holder(slot)
        if place is None:
            raise no_master(self.address, self.topology, self._error)
        return place

    def doubt(self, place: Place) -> None:
        """Require a query before the next call to this server, which may no longer be a master."""
        self._doubted.add(place)

    def learn(self, said: Redirect | None) -> None:
        """Apply a redirect of a Cluster node, and query before the next call to the old one; None: Cluster down."""
        if not isinstance(self.topology, ClusterTopology):
            return
        if said is None:
            self._doubted.update(self.topology.masters())
            return
        before = self.topology.holder(said.slot)
        self.topology.moved(said)
        if before is not None:
            self.doubt(before)

    def ask(self, deadline: Deadline | None = None, *, waits: bool = True) -> None:
        """Query the topology, unless another thread does or just did; `waits`: wait for that thread."""
        if self.topology is None:
            return
        deadline = deadline or Deadline(self.address.timeout_seconds)
        rounds, lock = self._rounds, self._lock
        if not lock.acquire(timeout=deadline.left if waits else 0):
            return
        try:
            if self._rounds == rounds:
                time.sleep(max(0.0, self._asked_at + REST_SECONDS - time.monotonic()))
                self._ask(self.topology, deadline)
        finally:
            lock.release()

    def _ask(self, topology: Topology, deadline: Deadline) -> None:
        began = time.monotonic()
        doubted, self._doubted = self._doubted, set()
        topology.begin()
        lines, sure = self._lines(topology, doubted), False
        # Sentinels with an open connection are asked at once; one that answers late is read last.
        kept, others = (
            [line for line in lines if line.connected],
            [line for line in lines if not line.connected],
        )
        asked = [line for line in kept if self._asks(line, topology, deadline.within(NEXT_SECONDS))]
        late = [line for line in asked if not line.readable(min(NEXT_SECONDS, deadline.left))]
        for line in [*(each for each in asked if each not in late), *others, *late]:
            if line not in asked and (deadline.over or (sure and self.address.apart)):
                continue
            patience = deadline.within(NEXT_SECONDS if sure else ANSWER_SECONDS)
            if line in asked or self._asks(line, topology, patience):
                sure = self._answers(line, topology, patience) or sure
        topology.settle()
        self._rounds += 1
        self._asked_at = time.monotonic()
        self._look_at = self._asked_at + max(LOOK_SECONDS, LOOK_SHARE * (self._asked_at - began))
        before, self._announced = self._announced, topology.known()
        if before != self._announced:
            self._on_change()

    def _lines(self, topology: Topology, doubted: set[Place]) -> list[Wire]:
        """Return connections to all who may be asked: open ones first, those who did not answer others last."""
        kept, self._kept = self._kept, {}
        lines = [kept[address] if address in kept else Wire(address) for address in topology.asked()]
        return sorted(lines, key=lambda line: (line.address.places[0] in doubted, not line.connected))

    def _asks(self, line: Wire, topology: Topology, patience: Deadline) -> bool:
        try:
            line.ready(patience)
            line.write(topology.questions, patience)
        except DelayQError as error:
            self._error = error
            return False
        return True

    def _answers(self, line: Wire, topology: Topology, patience: Deadline) -> bool:
        """Read the answer; returns whether it is sure. The connection to a Sentinel stays open."""
        sure = False
        try:
            sure = topology.learn(line.address.places[0], line.read(len(topology.questions), patience))
        except DelayQError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 -- what cannot be read is no answer
            line.drop()
            why = f"an answer that cannot be read: {error!r:.200}"
            self._error = Unavailable(line.address.where, why)
        if self.address.apart:
            line.drop()
        elif line.connected:
            self._kept[line.address] = line
        return sure

    def close(self) -> None:
        """Close what is open to Sentinels."""
        with self._lock:
            while self._kept:
                self._kept.popitem()[1].drop()
