"""A multiplexed connection: calls made during a round trip go out together in the next one."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from delayq.connection.deadline import CHECK_SECONDS, LATE_SECONDS
from delayq.connection.query import replies_of, reply_of
from delayq.connection.round_trip import CLOSED, not_master, packed, translated
from delayq.connection.topology_state import REFRESH_SECONDS
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Connection

    from delayq.connection.connectors import Connector
    from delayq.connection.round_trip import Command
    from delayq.protocol.write_durability import ConfirmCommands

# The maximum of one round trip, unless a single request is larger. Each round trip has its own timeout.
BATCH_COMMANDS = 1000
BATCH_BYTES = 1 << 20
BLOCKED_SECONDS = 0.1  # a timer that is later than this shows that the event loop was blocked
# A request: packed commands, their number, the confirmation after the batch, start in monotonic seconds, future.
Waiting = tuple[bytes, int, "tuple[ConfirmCommands, str] | None", float, "asyncio.Future[list[Any]]"]


class Multiplexer:
    """Natural batching without added latency: a request waits only for the previous round trip."""

    def __init__(
        self, connector: Connector, timeout_seconds: float, *, idle_seconds: float = math.inf
    ) -> None:
        """Connect on first use, after a failure, and when the server is no longer the master.

        A connection that was idle for longer than `idle_seconds` is checked with PING before it is used.
        """
        self.connector = connector
        self.connects = 0
        self.loading: set[str] = set()  # scripts whose source is queued or in flight
        self._sent: set[str] = set()  # those queued when the last round trip began
        self._seconds, self._idle_seconds, self._used_at = timeout_seconds, idle_seconds, 0.0
        self._connection: Connection | None = None
        self._waiting: list[Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._timeout: asyncio.Timeout | None = None  # of the current round trip
        self._timer: asyncio.TimerHandle  # that sets it off
        self._late_timer: asyncio.TimerHandle | None = None
        self._dropped = False  # the connection is to a former master
        self._over, self._closed = False, Unavailable(connector.where, CLOSED)
        connector.drop = self.drop

    async def send(
        self, commands: Sequence[Command], confirm: ConfirmCommands | None = None, stats: str = ""
    ) -> list[Any]:
        """Send raw commands. Returns the replies in order, error replies as values, then those to `confirm`.

        Commands are packed here and not in _flush(), so that an invalid argument fails only its own caller.
        """
        if self._over:
            raise self._closed.with_traceback(None)
        request = packed(commands)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        last = (confirm, stats) if confirm else None
        self._waiting.append((request, len(commands), last, time.monotonic(), future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await future

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            try:
                await self._timed_round_trip(batch)
            except Exception as error:  # noqa: BLE001 -- every caller must get a result
                failure = self._failure(error)
                if not self._dropped:
                    self.connector.on_failure()
                await self._fail([*batch, *self._overdue(error)], failure)
            except BaseException:  # closed, or interrupted
                await self._fail(batch, self._closed)
                raise

    def _overdue(self, error: Exception) -> list[Waiting]:
        """Remove and return queued requests that are older than the timeout: they fail with the batch.

        While a server hangs, each batch takes the whole timeout. A request must not wait for several of them.
        """
        if not isinstance(error, TimeoutError) or self._dropped:
            return []
        since = time.monotonic() - self._seconds
        overdue = [each for each in self._waiting if each[3] <= since]
        self._waiting = [each for each in self._waiting if each[3] > since]
        return overdue

    async def _timed_round_trip(self, batch: list[Waiting]) -> None:
        await self.connector.check_master(idle=time.monotonic() - self._used_at > REFRESH_SECONDS)
        if self._dropped:
            await self._disconnect()
        if self.connector.has_discovery:
            self._start_late_timer()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds, self._on_timer, loop.time() + self._seconds)
        try:
            async with asyncio.timeout(None) as self._timeout:
                await self._round_trip(batch)
        finally:
            self._timeout = None
            self._timer.cancel()
            if self._late_timer is not None:
                self._late_timer.cancel()

    def _on_timer(self, due: float) -> None:
        """Time out, unless the event loop was blocked meanwhile: then the reply may be there, and is read first."""
        loop = asyncio.get_running_loop()
        if loop.time() - due > BLOCKED_SECONDS:
            self._timer = loop.call_later(BLOCKED_SECONDS, self._time_out)
        else:
            self._time_out()

    def _time_out(self) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def _start_late_timer(self) -> None:
        self._late_timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self._on_late_reply)

    def _on_late_reply(self) -> None:
        self.connector.on_late_reply()
        self._start_late_timer()

    def _failure(self, error: Exception) -> DelayQError:
        if isinstance(error, DelayQError):
            return error
        where = self.connector.where
        if isinstance(error, TimeoutError) and self._dropped:
            return moved(where)
        if isinstance(error, TimeoutError):
            return Unavailable(where, f"no answer within {self._seconds:g} s", outage="timeout")
        if isinstance(error, RedisError | OSError):
            return translated(error, where, "commands")
        failure = Unavailable(where, type(error).__name__)
        failure.__cause__ = error
        return failure

    def _next_batch(self) -> list[Waiting]:
        """Remove the requests of the next round trip, at least one."""
        many = commands = size = 0
        for request, count, *_ in self._waiting:
            commands, size = commands + count, size + len(request)
            if many and (commands > BATCH_COMMANDS or size > BATCH_BYTES):
                break
            many += 1
        batch, self._waiting = self._waiting[:many], self._waiting[many:]
        self.loading -= self._sent
        self._sent = set(self.loading)
        return batch

    async def _round_trip(self, batch: list[Waiting]) -> None:
        connection = self._connection
        if connection is None or not await self._alive(connection):
            connection = self._connection = await self.connector.open()
            self.connects += 1
        shared = _shared(batch)
        everything = b"".join([request for request, *_ in batch])
        tails = b"".join(map(packed, shared.values()))
        await connection.send_packed_command(everything + tails, check_health=False)
        demoted, held = False, []
        for _, count, confirm, _, future in batch:
            replies = [await reply_of(connection) for _ in range(count)]
            demoted = demoted or any(map(not_master, replies))
            if confirm:
                held.append((replies, confirm[0], future))
            elif not future.done():
                future.set_result(replies)
        last = {each: [await reply_of(connection) for _ in commands] for each, commands in shared.items()}
        for replies, confirmed, future in held:
            if not future.done():
                future.set_result([*replies, *last[confirmed]])
        if demoted or any(not_master(reply) for replies in last.values() for reply in replies):
            self.connector.on_failure()
            await connection.disconnect(nowait=True)
        self._used_at = time.monotonic()

    async def _alive(self, connection: Connection) -> bool:
        """Whether the connection works. A firewall may have dropped it; then the result of calls would be unknown."""
        if ended(
            connection
        ):  # by the server, such as for its setting `timeout`; not known while a reply is awaited
            await connection.disconnect(nowait=True)
        if not connection.is_connected or time.monotonic() - self._used_at < self._idle_seconds:
            return bool(connection.is_connected)
        with suppress(RedisError, OSError):
            async with asyncio.timeout(min(CHECK_SECONDS, self._seconds / 2)):
                [reply] = await replies_of(connection, [("PING",)])
            if reply == b"PONG":
                return True
        await connection.disconnect(nowait=True)
        return False

    def drop(self) -> None:
        """Stop waiting for this server: another is the master now."""
        if not self._dropped:
            self._dropped = True
            self._time_out()

    async def _fail(self, batch: list[Waiting], error: Exception) -> None:
        """Fail the callers: Redis may or may not have executed what was sent."""
        try:
            await self._disconnect()
        finally:
            for *_, future in batch:
                if not future.done():
                    future.set_exception(error)

    async def _disconnect(self) -> None:
        self._dropped = False
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def close(self, why: Unavailable | None = None) -> None:
        """Close. Calls still waiting fail with Unavailable."""
        self._over, self._closed = True, why or self._closed
        if self._flusher is not None and not self._flusher.done():
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        await self._fail(self._waiting, self._closed)
        self._waiting = []
        await self.connector.close()


def ended(connection: Connection) -> bool:
    """Return whether the server has closed an idle connection."""
    reader = connection._reader  # noqa: SLF001 -- redis-py has no such question
    return reader is not None and bool(reader.at_eof())


def moved(where: str) -> Unavailable:
    """Return the error for calls to a server that did not reply before another became the master."""
    return Unavailable(where, "no answer, and another server is the master now", outage="timeout")


def _shared(batch: list[Waiting]) -> dict[ConfirmCommands, Sequence[Command]]:
    """Return each distinct confirmation of a batch with its commands. It is sent once, after all requests."""
    shared: dict[ConfirmCommands, Sequence[Command]] = {}
    for _, _, confirm, *_ in batch:
        if confirm is not None and confirm[0] not in shared:
            shared[confirm[0]] = confirm[0].commands(confirm[1])
    return shared
