"""Blocking connections for code without an event loop: any number of threads, a bounded pool for each server."""

from __future__ import annotations

import os
from collections import defaultdict
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, ref

from delayq.connection.blocking_discovery import BlockingDiscovery
from delayq.connection.pool import Pool
from delayq.connection.round_trip import answered, each_answered
from delayq.connection.routing import Holding
from delayq.connection.ticket import Ticket
from delayq.errors import DelayQError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.connection.address import Address
    from delayq.connection.deadline import Deadline
    from delayq.connection.place import Place
    from delayq.connection.pool import Loan
    from delayq.connection.round_trip import Command
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import ConfirmCommands

T = TypeVar("T")


class Servers:
    """The servers of one topology, for all threads: the holder of each slot, and a pool for each server."""

    def __init__(self, address: Address) -> None:
        """Connect and query on first use."""
        self.address, self.discovery = address, BlockingDiscovery(address, self._moved)
        self._pools: dict[Place, Pool] = {}

    def pool(self, place: Place) -> Pool:
        """Return the pool of one server. With Sentinels, its connections check that the server is a master."""
        pool = self._pools.get(place)
        if pool is not None:
            return pool
        return self._pools.setdefault(
            place, Pool(self.address.at(place), checked=self.address.kind == "sentinel")
        )

    def give(self, place: Place, loan: Loan) -> None:
        """Return a connection to its pool; close it if its server is no longer a master."""
        pool = self._pools.get(place)
        if pool is None:
            loan.wire.drop()
        else:
            pool.give(loan)

    def _moved(self) -> None:
        """Close the connections to servers that are no longer masters."""
        masters = self.discovery.topology.masters() if self.discovery.topology is not None else frozenset()
        for place in set(self._pools) - masters:
            pool = self._pools.pop(place, None)
            if pool is not None:
                pool.drop()

    def demoted(self, place: Place) -> None:
        """Close the connections to a server that is no longer or not yet a master, and query before the next call."""
        self.pool(place).drop()
        self.discovery.suspect(place)

    def successor(self, place: Place, slot: int, deadline: Deadline) -> Place | None:
        """Return the new master if it is not this server, which has not replied; None otherwise, or if unknown."""
        if self.address.kind == "standalone":
            return None
        self.discovery.query(deadline)
        try:
            now = self.discovery.holder(slot, deadline)
        except DelayQError:
            return None
        return None if now == place else now

    def close(self) -> None:
        """Close every connection."""
        for pool in list(self._pools.values()):
            pool.drop()
        self.discovery.close()


class Thread(local):
    """The calls that one thread has started and not finished. A signal handler may start one within another."""

    def __init__(self) -> None:
        """Start without calls."""
        self._tickets: set[ref[Ticket]] = set()  # weak: the ticket of an interrupted call is gone

    def add(self, ticket: Ticket) -> None:
        """Add a call, until it is gone."""
        self._tickets.add(ref(ticket, self._tickets.discard))

    def others(self, ticket: Ticket) -> list[Ticket]:
        """Return the calls besides this one."""
        found = [each() for each in list(self._tickets)]
        return [each for each in found if each is not None and each is not ticket]


class SyncConnection:
    """A pool of at most `max_connections` for each server. A call waits for a free connection."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, after a failure, and when the server is no longer the master."""
        self.address = address
        self._thread = Thread()
        self.forked()
        _connections.add(self)

    def forked(self) -> None:
        """Drop inherited state: connections belong to the parent, and threads that hold locks do not exist here."""
        self._servers = Servers(self.address)

    def run(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None = None, shards: Sequence[Keys] = ()
    ) -> list[Any]:
        """Return the results of calls, in order. Raises the first error after all have run; Unavailable without Redis.

        With `confirm`, the last item is the list of replies to these commands, or the error. Without calls, the
        commands go to all servers that hold `shards`, and the result has one list of replies for each server.
        """
        return answered(*self._done(self.start(calls, confirm, shards)))

    def one(self, call: Call[T]) -> T:
        """Return the result of one call."""
        answer: T = self.run((call,))[0]
        return answer

    def answers(self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None = None) -> list[Any]:
        """Return the results of calls, in order, with errors as values.

        The last item is the confirmation, as in run().
        """
        return each_answered(*self._done(self.start(calls, confirm)))

    def start(
        self, calls: Sequence[Call[Any]], confirm: ConfirmCommands | None = None, shards: Sequence[Keys] = ()
    ) -> Ticket:
        """Send calls without waiting for replies. finish() sends those for which no connection is free.

        A thread may have started another call before. No thread waits for a connection while it holds one; otherwise
        threads could deadlock. So later calls do not overtake calls that are not yet sent.
        """
        ticket = Ticket(self._servers, confirm)
        if calls:
            ticket.add_calls(calls)
        else:
            ticket.add_shards(shards)
        self._thread.add(ticket)
        ticket.start(free=not any(each.unsent for each in self._thread.others(ticket)))
        return ticket

    def finish(self, ticket: Ticket) -> list[Any]:
        """Wait for the results of started calls, with errors as values. The timeout starts now."""
        ticket.renew()
        return each_answered(*self._done(ticket))

    def _done(self, ticket: Ticket) -> tuple[list[Any], list[Any]]:
        ticket.finish(alone=not any(each.holds for each in self._thread.others(ticket)))
        return ticket.results()

    def abandon(self, ticket: Ticket) -> None:
        """Discard calls that were started; their thread calls this instead of finish()."""
        ticket.abandon()

    def send(self, commands: Sequence[Command], keys: Keys | None = None) -> list[Any]:
        """Send raw commands to the server that holds these keys, or to any.

        Returns the replies in order, with error replies as values.
        """
        ticket = Ticket(self._servers)
        ticket.add_commands(commands, keys)
        self._thread.add(ticket)
        ticket.finish(alone=not any(each.holds for each in self._thread.others(ticket)))
        return ticket.replies()

    def servers(self, shards: Iterable[Keys]) -> list[Holding]:
        """Group shards by the server that holds them; Unavailable if unknown."""
        found: dict[Place, list[Keys]] = defaultdict(list)
        for keys in shards:
            found[self._servers.discovery.holder(keys.slot)].append(keys)
        return [Holding(str(place), tuple(each)) for place, each in found.items()]

    def close(self) -> None:
        """Close every connection."""
        self._servers.close()


_connections: WeakSet[SyncConnection] = WeakSet()


def _reset_after_fork() -> None:
    """Reset all connections in a forked child, which has one thread."""
    for each in list(_connections):
        each.forked()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_reset_after_fork)
