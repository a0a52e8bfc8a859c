"""Blocking connections for code without an event loop; any number of threads, a bounded pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from redis import BlockingConnectionPool, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio import SSLConnection as AsyncSSLConnection
from redis.asyncio import UnixDomainSocketConnection as AsyncUnixConnection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from delayq.connection.exchange import exchange, packed, raise_first, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from delayq.broker import Call
    from delayq.connection.address import Address
    from delayq.connection.exchange import Command

T = TypeVar("T")
_KINDS = {AsyncSSLConnection: SSLConnection, AsyncUnixConnection: UnixDomainSocketConnection}


@dataclass(slots=True)
class Ticket:
    """Calls that were sent, and the connection their answers will come on."""

    connection: Any
    steps: Generator[list[Command], list[Any], list[Any]]
    commands: Sequence[Command]


def _nothing_more() -> Generator[list[Command], list[Any], list[Any]]:
    yield from ()
    return []


class SyncConnection:
    """A pool of at most `max_connections`; a call waits for a free one."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure."""
        self.address = address
        options = dict(address.options)
        kind = _KINDS.get(options.pop("connection_class", None), Connection)
        self._pool = BlockingConnectionPool(
            connection_class=kind,
            max_connections=address.max_connections,
            timeout=address.timeout_seconds,
            protocol=2,
            socket_timeout=address.timeout_seconds,
            socket_connect_timeout=address.timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            **options,
        )

    def run(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Answer each call in order. Raises the first error, after all have been tried; Unavailable without Redis."""
        return self.finish(self.start(calls))

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send raw commands; replies come in order, an error reply as a value."""
        ticket = Ticket(self._connect(), _nothing_more(), commands)
        try:
            self._guarded(ticket, self._write)
            return self._guarded(ticket, self._read_all)
        finally:
            self._pool.release(ticket.connection)

    def start(self, calls: Sequence[Call[Any]]) -> Ticket:
        """Send calls without waiting for the answers."""
        steps = exchange(calls, self.address.where)
        ticket = Ticket(self._connect(), steps, next(steps))
        self._guarded(ticket, self._write)
        return ticket

    def finish(self, ticket: Ticket) -> list[Any]:
        """Wait for the answers of what was started."""
        try:
            while True:
                replies = self._guarded(ticket, self._read_all)
                try:
                    ticket.commands = ticket.steps.send(replies)
                except StopIteration as done:
                    return raise_first(done.value)
                self._guarded(ticket, self._write)
        finally:
            self._pool.release(ticket.connection)

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
        ticket.connection.send_packed_command([packed(ticket.commands)], check_health=False)

    def _read_all(self, ticket: Ticket) -> list[Any]:
        return [self._read(ticket.connection) for _ in ticket.commands]

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
