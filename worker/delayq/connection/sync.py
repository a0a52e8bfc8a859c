"""Blocking connections for code without an event loop; any number of threads, a bounded pool for each server."""

from __future__ import annotations

import os
from collections import defaultdict
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from delayq.connection.round_trip import answered, each_answered
from delayq.connection.routing import Holding
from delayq.connection.servers import Servers
from delayq.connection.ticket import Ticket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.connection.address import Address
    from delayq.connection.place import Place
    from delayq.connection.round_trip import Command
    from delayq.protocol.commands import Call
    from delayq.protocol.keys import Keys
    from delayq.protocol.write_durability import Behind

T = TypeVar("T")


class Thread(local):
    """What one thread has started, and not finished."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.tickets: list[Ticket] = []


class SyncConnection:
    """A pool of at most `max_connections` to each server; a call waits for a free one."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure or when a server turns out not to be the master."""
        self.address = address
        self._thread = Thread()
        self.forked()
        _those.add(self)

    def forked(self) -> None:
        """Begin anew: connections are the parent's, and locks may be held by threads that are not there."""
        self._servers = Servers(self.address)

    def run(
        self, calls: Sequence[Call[Any]], behind: Behind | None = None, shards: Sequence[Keys] = ()
    ) -> list[Any]:
        """Answer each call in order. Raises the first error, after all have been tried; Unavailable without Redis.

        With something `behind` the calls, its replies come last, as one list, or its error as a value. Without calls,
        it is for the servers that hold these shards, and the answer a list of replies from each.
        """
        return answered(*self._done(self.start(calls, behind, shards)))

    def one(self, call: Call[T]) -> T:
        """Answer a single call."""
        answer: T = self.run((call,))[0]
        return answer

    def answers(self, calls: Sequence[Call[Any]], behind: Behind | None = None) -> list[Any]:
        """Answer each call in order, one that was refused or not served with its error as the value.

        What is behind them is answered as by run().
        """
        return each_answered(*self._done(self.start(calls, behind)))

    def start(
        self, calls: Sequence[Call[Any]], behind: Behind | None = None, shards: Sequence[Keys] = ()
    ) -> Ticket:
        """Send calls, waiting for nothing but to connect; what finds no free connection is sent by finish().

        A thread may have started another call before. No thread ever waits for a connection while it holds one, or as
        many threads as there are connections would wait for each other; so nothing overtakes what is still to be sent.
        """
        ticket = Ticket(self._servers, behind)
        if calls:
            ticket.add_calls(calls)
        else:
            ticket.add_shards(shards)
        try:
            ticket.start(free=not any(each.unsent for each in self._thread.tickets))
        except BaseException:
            ticket.abandon()
            raise
        self._thread.tickets.append(ticket)
        return ticket

    def finish(self, ticket: Ticket) -> list[Any]:
        """Wait for the answers of what was started, as long from now on as for any; errors as values."""
        ticket.renew()
        return each_answered(*self._done(ticket))

    def _done(self, ticket: Ticket) -> tuple[list[Any], list[Any]]:
        self._thread.tickets.remove(ticket)
        ticket.finish(alone=not any(each.holds for each in self._thread.tickets))
        return ticket.results()

    def abandon(self, ticket: Ticket) -> None:
        """Give up on what was started and will not be finished; the same thread calls this, in place of finish()."""
        self._thread.tickets.remove(ticket)
        ticket.abandon()

    def send(self, commands: Sequence[Command], keys: Keys | None = None) -> list[Any]:
        """Send raw commands to the server that holds these keys, or to the only one, or to any.

        Replies come in order, an error reply as a value.
        """
        ticket = Ticket(self._servers)
        ticket.add_commands(commands, keys)
        ticket.finish(alone=not any(each.holds for each in self._thread.tickets))
        return ticket.replies()

    def servers(self, shards: Iterable[Keys]) -> list[Holding]:
        """Group shards by the server that holds them now. Unavailable if unknown."""
        found: dict[Place, list[Keys]] = defaultdict(list)
        for keys in shards:
            found[self._servers.discovery.holder(keys.slot)].append(keys)
        return [Holding(str(place), tuple(each)) for place, each in found.items()]

    def close(self) -> None:
        """Close every connection."""
        self._servers.close()


_those: WeakSet[SyncConnection] = WeakSet()


def _begin_anew() -> None:
    """In a forked child, before anybody can use a connection there; no other thread runs yet."""
    for each in list(_those):
        each.forked()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_begin_anew)
