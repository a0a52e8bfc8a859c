"""Finds the current master, blocking: one thread asks, all threads use its answers. topology_state.py stores them."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Final

from delayq.connection.deadline import Deadline
from delayq.connection.permits import Permits
from delayq.connection.pool import Wire
from delayq.connection.round_trip import MALFORMED
from delayq.connection.topology_state import (
    NEXT_SERVER_SECONDS,
    QUERY_PAUSE_SECONDS,
    REFRESH_SECONDS,
    ClusterTopology,
    no_master,
    topology_of,
)
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.routing import Redirect
    from delayq.connection.topology_state import Topology

# For one server to connect and reply. Shorter than for asyncio (query.py): the next server is queried only afterwards.
SEQUENTIAL_REPLY_SECONDS: Final = 1.0
# Periodic queries take at most a twentieth of the time, even if Sentinels do not answer.
REFRESH_SHARE: Final = 20


class BlockingDiscovery:
    """Discovers the topology of one SyncConnection, and stores the result."""

    def __init__(self, address: Address, on_change: Callable[[], None] = lambda: None) -> None:
        """Send nothing until the first call; `on_change` is called when the topology changes."""
        self.address, self._on_change = address, on_change
        self.topology = None if address.kind == "standalone" else topology_of(address)
        self._notified = self.topology and self.topology.snapshot()
        self._rounds = 0
        self._queried_at = self._refresh_at = -math.inf  # monotonic seconds
        self._suspects: set[Place] = set()
        self._error: DelayQError | None = None  # of the last query that failed
        self._turn, self._asker = Permits(1), 0  # the thread that queries, or did so last
        self._open: dict[Address, Wire] = {}

    def holder(self, slot: int = 0, deadline: Deadline | None = None) -> Place:
        """Return the master, of a slot; Unavailable if unknown."""
        if self.topology is None:
            return self.address.places[0]
        known = self.topology.holder(slot)
        if known is None or known in self._suspects:
            self.query(deadline)
        elif not self.address.is_cluster and time.monotonic() > self._refresh_at:
            self.query(deadline, wait=False)  # no failure is known
        place = self.topology.holder(slot)
        if place is None:
            raise no_master(self.address, self.topology, self._error)
        return place

    def suspect(self, place: Place) -> None:
        """Require a query before the next call to this server, which may no longer be a master."""
        self._suspects.add(place)

    def apply_redirect(self, redirect: Redirect | None) -> None:
        """Apply a redirect of a Cluster node, and query before the next call to the old one; None: Cluster down."""
        if not isinstance(self.topology, ClusterTopology):
            return
        if redirect is None:
            self._suspects.update(self.topology.masters())
            return
        before = self.topology.holder(redirect.slot)
        self.topology.apply_redirect(redirect)
        if before is not None:
            self.suspect(before)

    def query(self, deadline: Deadline | None = None, *, wait: bool = True) -> None:
        """Query the topology, unless another thread does or just did; `wait`: wait for that thread.

        A signal handler that interrupted a query of its thread makes another one: it must not wait for itself.
        """
        if self.topology is None:
            return
        deadline = deadline or Deadline(self.address.timeout_seconds)
        rounds, turn = self._rounds, self._turn.take()
        within = turn is None and self._asker == get_ident()
        if turn is None and wait and not within:
            turn = self._turn.take(deadline.left)
        if turn is None and not within:
            return
        try:
            self._asker = get_ident()
            if self._rounds == rounds:
                time.sleep(max(0.0, self._queried_at + QUERY_PAUSE_SECONDS - time.monotonic()))
                self._run_query(self.topology, deadline)
        finally:
            if turn is not None:
                self._turn.give(turn)

    def _run_query(self, topology: Topology, deadline: Deadline) -> None:
        began = time.monotonic()
        suspects, self._suspects = self._suspects, set()
        try:
            self._query_servers(topology, suspects, deadline)
        except BaseException:
            self._suspects |= suspects
            raise
        self._rounds += 1
        self._queried_at = time.monotonic()
        self._refresh_at = self._queried_at + max(REFRESH_SECONDS, REFRESH_SHARE * (self._queried_at - began))
        if self._notified != topology.snapshot():
            self._on_change()
            self._notified = topology.snapshot()

    def _query_servers(self, topology: Topology, suspects: set[Place], deadline: Deadline) -> None:
        """Query one server after the other, those with an open connection first."""
        topology.begin_round()
        wires, certain = self._wires(topology, suspects), False
        # Query Sentinels with an open connection first, all at once. Read late replies last.
        kept, others = (
            [wire for wire in wires if wire.connected],
            [wire for wire in wires if not wire.connected],
        )
        asked = [
            wire for wire in kept if self._send_query(wire, topology, deadline.within(NEXT_SERVER_SECONDS))
        ]
        late = [wire for wire in asked if not wire.readable(min(NEXT_SERVER_SECONDS, deadline.left))]
        for wire in [*(each for each in asked if each not in late), *others, *late]:
            if wire not in asked and (deadline.over or (certain and self.address.is_cluster)):
                continue
            patience = deadline.within(NEXT_SERVER_SECONDS if certain else SEQUENTIAL_REPLY_SECONDS)
            if wire in asked or self._send_query(wire, topology, patience):
                certain = self._read_replies(wire, topology, patience) or certain
        topology.end_round()

    def _wires(self, topology: Topology, suspects: set[Place]) -> list[Wire]:
        """Return connections to all candidates: open ones first, suspects last."""
        kept, self._open = self._open, {}
        wires = [kept[address] if address in kept else Wire(address) for address in topology.candidates()]
        return sorted(wires, key=lambda wire: (wire.address.places[0] in suspects, not wire.connected))

    def _send_query(self, wire: Wire, topology: Topology, patience: Deadline) -> bool:
        try:
            wire.ready(patience)
            wire.write(topology.queries, patience)
        except DelayQError as error:
            self._error = error
            return False
        return True

    def _read_replies(self, wire: Wire, topology: Topology, patience: Deadline) -> bool:
        """Read the replies; returns whether they are certain. The connection to a Sentinel stays open."""
        certain = False
        try:
            certain = topology.add_reply(wire.address.places[0], wire.read(len(topology.queries), patience))
        except DelayQError as error:
            self._error = error
        except MALFORMED as error:  # counts as no reply
            wire.drop()
            why = f"malformed reply to a topology query: {error!r:.200}"
            self._error = Unavailable(wire.address.where, why)
        if self.address.is_cluster:
            wire.drop()
        elif wire.connected:
            self._open[wire.address] = wire
        return certain

    def close(self) -> None:
        """Close the connections to Sentinels."""
        with suppress(KeyError):
            while True:
                self._open.popitem()[1].drop()
