"""One multiplexed connection: calls that arrive while a round trip is under way go out together in the next one."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from delayq.connection.asking import replies_of, reply_of
from delayq.connection.deadline import CHECK_SECONDS, DOUBT_SECONDS
from delayq.connection.round_trip import not_master, packed, translated
from delayq.connection.topology_state import LOOK_SECONDS
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Connection

    from delayq.connection.connectors import One
    from delayq.connection.round_trip import Command
    from delayq.protocol.write_durability import Behind

# What one round trip carries, unless a single request is larger: each has a time-out to itself.
BATCH_COMMANDS = 1000
BATCH_BYTES = 1 << 20
# What to send, how many replies, what else is to be sent behind everybody's, and who waits for the replies.
# And since when, in monotonic seconds.
Waiting = tuple[bytes, int, "tuple[Behind, str] | None", float, "asyncio.Future[list[Any]]"]


class Multiplexer:
    """Natural batching without added latency: no timer, the previous round trip is the only wait."""

    def __init__(self, connector: One, timeout_seconds: float, *, idle_seconds: float = math.inf) -> None:
        """Connect on first use, and again after any failure or when the server turns out not to be the master.

        A connection that was idle for longer than `idle_seconds` is asked whether it is alive before it is used.
        """
        self.connector = connector
        self.connects = 0
        self.brought: set[str] = set()  # scripts whose source waits or is under way
        self._sent: set[str] = set()  # those of them that waited when the last round trip began
        self._seconds, self._idle_seconds, self._used_at = timeout_seconds, idle_seconds, 0.0
        self._connection: Connection | None = None
        self._waiting: list[Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._timeout: asyncio.Timeout | None = None  # of the round trip that is under way
        self._doubt: asyncio.TimerHandle | None = None
        self._dropped = False  # the connection leads to the wrong server
        self._over, self._closed = False, Unavailable(connector.where, "connection closed")
        connector.drop = self.drop

    async def send(
        self, commands: Sequence[Command], behind: Behind | None = None, stats: str = ""
    ) -> list[Any]:
        """Send raw commands; replies come in order, an error reply as a value, those to what is `behind` at the end.

        Packed here and not in the flusher: what cannot be packed must fail for its own caller only.
        """
        if self._over:
            raise self._closed.with_traceback(None)
        request = packed(commands)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        last = (behind, stats) if behind else None
        self._waiting.append((request, len(commands), last, time.monotonic(), future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await future

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            try:
                await self._timed_round_trip(batch)
            except asyncio.CancelledError:
                await self._fail(batch, self._closed)
                raise
            except Exception as error:  # noqa: BLE001 -- no caller may be left waiting
                failure = self._failure(error)
                if not self._dropped:
                    self.connector.failed()
                await self._fail([*batch, *self._overdue(error)], failure)

    def _overdue(self, error: Exception) -> list[Waiting]:
        """Take those who have waited for as long as anybody does: behind a server that hangs, waits would add up."""
        if not isinstance(error, TimeoutError) or self._dropped:
            return []
        since = time.monotonic() - self._seconds
        overdue = [each for each in self._waiting if each[3] <= since]
        self._waiting = [each for each in self._waiting if each[3] > since]
        return overdue

    async def _timed_round_trip(self, batch: list[Waiting]) -> None:
        await self.connector.look(idle=time.monotonic() - self._used_at > LOOK_SECONDS)
        if self._dropped:
            await self._disconnect()
        if self.connector.doubts:
            self._await_doubt()
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                await self._round_trip(batch)
        finally:
            self._timeout = None
            if self._doubt is not None:
                self._doubt.cancel()

    def _await_doubt(self) -> None:
        self._doubt = asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._doubted)

    def _doubted(self) -> None:
        self.connector.doubt()
        self._await_doubt()

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
        """Take what goes out together, at least one request."""
        many = commands = size = 0
        for request, count, *_ in self._waiting:
            commands, size = commands + count, size + len(request)
            if many and (commands > BATCH_COMMANDS or size > BATCH_BYTES):
                break
            many += 1
        batch, self._waiting = self._waiting[:many], self._waiting[many:]
        self.brought -= self._sent
        self._sent = set(self.brought)
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
        elsewhere, held = False, []
        for _, count, behind, _, future in batch:
            replies = [await reply_of(connection) for _ in range(count)]
            elsewhere = elsewhere or any(map(not_master, replies))
            if behind:
                held.append((replies, behind[0], future))
            elif not future.done():
                future.set_result(replies)
        last = {each: [await reply_of(connection) for _ in commands] for each, commands in shared.items()}
        for replies, asked, future in held:
            if not future.done():
                future.set_result([*replies, *last[asked]])
        if elsewhere or any(not_master(reply) for replies in last.values() for reply in replies):
            self.connector.failed()
            await connection.disconnect(nowait=True)
        self._used_at = time.monotonic()

    async def _alive(self, connection: Connection) -> bool:
        """Whether it can be used. What a firewall has forgotten would swallow calls that may have been done or not."""
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
        """Stop waiting for this server: another is to be asked from now on."""
        if not self._dropped:
            self._dropped = True
            if self._timeout is not None and not self._timeout.expired():
                self._timeout.reschedule(asyncio.get_running_loop().time())

    async def _fail(self, batch: list[Waiting], error: Exception) -> None:
        """Fail the callers: what was sent may or may not have been executed."""
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
        """Close; calls still waiting fail with Unavailable."""
        self._over, self._closed = True, why or self._closed
        if self._flusher is not None and not self._flusher.done():
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        await self._fail(self._waiting, self._closed)
        self._waiting = []
        await self.connector.close()


def moved(where: str) -> Unavailable:
    """Say of a server that did not answer in time for others to wait for it: they have another master."""
    return Unavailable(where, "no answer, and its master is another server now", outage="timeout")


def _shared(batch: list[Waiting]) -> dict[Behind, Sequence[Command]]:
    """What is asked once behind everybody's commands; the first who asks says by which counter."""
    shared: dict[Behind, Sequence[Command]] = {}
    for _, _, behind, *_ in batch:
        if behind is not None and behind[0] not in shared:
            shared[behind[0]] = behind[0].commands(behind[1])
    return shared
