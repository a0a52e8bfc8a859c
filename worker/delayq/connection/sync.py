"""Blocking connections for code without an event loop; any number of threads, a bounded pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import BoundedSemaphore, local
from typing import TYPE_CHECKING, Any, TypeVar

from redis import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio import SSLConnection as AsyncSSLConnection
from redis.asyncio import UnixDomainSocketConnection as AsyncUnixConnection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from delayq.connection.round_trip import (
    answered,
    not_master,
    packed,
    round_trip,
    translated,
)
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from delayq.broker import Call
    from delayq.connection.address import Address
    from delayq.connection.round_trip import Command

T = TypeVar("T")
_KINDS = {AsyncSSLConnection: SSLConnection, AsyncUnixConnection: UnixDomainSocketConnection}


@dataclass(slots=True, eq=False)
class Ticket:
    """Calls under way: sent on a connection, failed, or, with neither, still to be sent."""

    steps: Generator[list[Command], list[Any], list[Any]]
    commands: Sequence[Command]
    behind: Sequence[Command] = ()  # sent after the commands, each time; only the last replies count
    connection: Any = None
    error: DelayQError | None = None
    last: list[Any] = field(default_factory=list)  # those replies


class Thread(local):
    """What one thread has started."""

    unsent = 0  # calls that found no free connection


def _nothing_more() -> Generator[list[Command], list[Any], list[Any]]:
    yield from ()
    return []


class SyncConnection:
    """A pool of at most `max_connections`; a call waits for a free one."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure or when the server turns out not to be the master."""
        self.address = address
        options = dict(address.options)
        kind = _KINDS.get(options.pop("connection_class", None), Connection)
        self._places = BoundedSemaphore(address.max_connections)
        self._thread = Thread()
        self._pool = ConnectionPool(
            connection_class=kind,
            max_connections=address.max_connections,
            protocol=2,
            socket_timeout=address.timeout_seconds,
            socket_connect_timeout=address.timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            **options,
        )

    def run(self, calls: Sequence[Call[Any]], behind: Sequence[Command] = ()) -> list[Any]:
        """Answer each call in order. Raises the first error, after all have been tried; Unavailable without Redis.

        With commands to send `behind` the calls, their replies come last, as one list, or their error as a value.
        """
        return self.finish(self.start(calls, behind))

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send raw commands; replies come in order, an error reply as a value."""
        ticket = Ticket(_nothing_more(), commands)
        self._wait_for_place()
        self._begin(ticket)
        try:
            return self._guarded(ticket, self._read_all)
        finally:
            self._release(ticket)

    def start(self, calls: Sequence[Call[Any]], behind: Sequence[Command] = ()) -> Ticket:
        """Send calls without waiting for anything: without a free connection, or on failure, finish() sees to it.

        A thread may have started another call before. No thread ever waits for a connection while it holds one, or as
        many threads as there are connections would wait for each other; so nothing overtakes what is still to be sent.
        """
        steps = round_trip(calls, self.address.where)
        ticket = Ticket(steps, next(steps), behind)
        if self._thread.unsent or not self._places.acquire(blocking=False):
            self._thread.unsent += 1
            return ticket
        try:
            self._begin(ticket)
        except DelayQError as error:
            ticket.error = error
        return ticket

    def finish(self, ticket: Ticket) -> list[Any]:
        """Wait for the answers of what was started."""
        if ticket.error is not None:
            raise ticket.error
        if ticket.connection is None:
            self._thread.unsent -= 1
            self._wait_for_place()
            self._begin(ticket)
        try:
            while True:
                replies = self._guarded(ticket, self._read_all)
                try:
                    ticket.commands = ticket.steps.send(replies)
                except StopIteration as done:
                    return answered(done.value, ticket.last, self.address.where, ticket.behind)
                self._guarded(ticket, self._write)
        finally:
            self._release(ticket)

    def abandon(self, ticket: Ticket) -> None:
        """Give up on what was started and will not be finished; the same thread calls this, in place of finish()."""
        if ticket.connection is not None:
            try:
                ticket.connection.disconnect()  # the answers are on their way
            finally:
                self._release(ticket)
        elif ticket.error is None:
            self._thread.unsent -= 1

    def _wait_for_place(self) -> None:
        seconds = self.address.timeout_seconds
        if not self._places.acquire(timeout=seconds):
            raise Unavailable(self.address.where, f"no free connection within {seconds:g} s")

    def _begin(self, ticket: Ticket) -> None:
        """Connect and send; the place that the caller acquired is given back on failure."""
        try:
            ticket.connection = self._connect()
            self._guarded(ticket, self._write)
        except BaseException:
            self._release(ticket)
            raise

    def _release(self, ticket: Ticket) -> None:
        if ticket.connection is not None:
            self._pool.release(ticket.connection)
            ticket.connection = None
        self._places.release()

    def _connect(self) -> Any:  # noqa: ANN401 -- redis-py's own base class has no public name
        try:
            return self._pool.get_connection()
        except (RedisError, OSError) as error:
            raise translated(error, self.address.where, "connect") from error

    def _guarded(self, ticket: Ticket, act: Callable[[Ticket], T]) -> T:
        """After any failure the connection may hold half a reply: close it, so that nobody reads the rest as theirs."""
        try:
            return act(ticket)
        except (RedisError, OSError) as error:
            ticket.connection.disconnect()
            raise translated(error, self.address.where, "commands") from error
        except BaseException:
            ticket.connection.disconnect()
            raise

    @staticmethod
    def _write(ticket: Ticket) -> None:
        ticket.connection.send_packed_command(
            [packed([*ticket.commands, *ticket.behind])], check_health=False
        )

    def _read_all(self, ticket: Ticket) -> list[Any]:
        replies = [self._read(ticket.connection) for _ in ticket.commands]
        ticket.last = [self._read(ticket.connection) for _ in ticket.behind]
        if any(map(not_master, [*replies, *ticket.last])):
            ticket.connection.disconnect()
            self._pool.disconnect(inuse_connections=False)
        return replies

    @staticmethod
    def _read(connection: Any) -> object:  # noqa: ANN401 -- redis-py's own base class has no public name
        try:
            return connection.read_response(disable_decoding=True)
        except RedisError as error:
            if not connection.is_connected:
                raise
            return error

    def close(self) -> None:
        """Close every connection."""
        self._pool.disconnect()
