"""One multiplexed connection: calls that arrive while a round trip is under way go out together in the next one."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import RedisError

from delayq.connection.round_trip import (
    answered,
    not_master,
    packed,
    round_trip,
    translated,
)
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.broker import Call
    from delayq.connection.address import Address
    from delayq.connection.round_trip import Command

T = TypeVar("T")
# What one round trip carries, unless a single request is larger: each has a time-out to itself.
BATCH_COMMANDS = 1000
BATCH_BYTES = 1 << 20
# What to send, how many replies, what else is to be sent behind everybody's, who waits for the replies.
Waiting = tuple[bytes, int, "tuple[Command, ...]", "asyncio.Future[list[Any]]"]


class AsyncConnection:
    """Natural batching without added latency: no timer, the previous round trip is the only wait."""

    def __init__(self, address: Address) -> None:
        """Connect on first use, and again after any failure or when the server turns out not to be the master."""
        self.address = address
        self.connects = 0
        self._connection = address.connection()
        self._waiting: list[Waiting] = []
        self._flusher: asyncio.Task[None] | None = None
        self._brought: set[str] = set()  # scripts whose source waits or is under way
        self._sent: set[str] = set()  # those of them that waited when the last round trip began

    async def run(self, calls: Sequence[Call[Any]], behind: tuple[Command, ...] = ()) -> list[Any]:
        """Answer each call in order. Raises the first error, after all have been tried; Unavailable without Redis.

        With commands to send `behind` the calls, their replies come last, as one list, or their error as a value.
        Requests that go out together share one of the same kind: it speaks of all that this connection wrote.
        """
        answers, replies = await self._driven(calls, behind)
        return answered(answers, replies, self.address.where, behind)

    async def one(self, call: Call[T]) -> T:
        """Answer a single call."""
        answer: T = (await self.run((call,)))[0]
        return answer

    async def answers(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Answer each call in order, a refused one with its error as the value."""
        return (await self._driven(calls, ()))[0]

    async def _driven(
        self, calls: Sequence[Call[Any]], behind: tuple[Command, ...]
    ) -> tuple[list[Any], list[Any]]:
        steps = round_trip(calls, self.address.where, self._brought)
        commands = next(steps)
        while True:
            replies = await self.send(commands, behind)
            replies, last = replies[: len(commands)], replies[len(commands) :]
            try:
                commands = steps.send(replies)
            except StopIteration as done:
                return done.value, last

    async def send(self, commands: Sequence[Command], behind: tuple[Command, ...] = ()) -> list[Any]:
        """Send raw commands; replies come in order, an error reply as a value.

        Packed here and not in the flusher: what cannot be packed has to fail for its own caller and nobody else.
        """
        request = packed(commands)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, len(commands), behind, future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await future

    async def _flush(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            try:
                async with asyncio.timeout(self.address.timeout_seconds):
                    await self._round_trip(batch)
            except asyncio.CancelledError:
                await self._fail(batch, Unavailable(self.address.where, "connection closed"))
                raise
            except TimeoutError:
                seconds = self.address.timeout_seconds
                why = f"no answer within {seconds:g} s"
                await self._fail(batch, Unavailable(self.address.where, why, outage="timeout"))
            except (RedisError, OSError) as error:
                await self._fail(batch, translated(error, self.address.where, "commands"))
            except Exception as error:  # noqa: BLE001 -- whatever it is, nobody may be left waiting
                failure = Unavailable(self.address.where, type(error).__name__)
                failure.__cause__ = error
                await self._fail(batch, failure)

    def _next_batch(self) -> list[Waiting]:
        """Take what goes out together, at least one request."""
        many = commands = size = 0
        for request, count, _, _ in self._waiting:
            commands, size = commands + count, size + len(request)
            if many and (commands > BATCH_COMMANDS or size > BATCH_BYTES):
                break
            many += 1
        batch, self._waiting = self._waiting[:many], self._waiting[many:]
        self._brought -= self._sent
        self._sent = set(self._brought)
        return batch

    async def _round_trip(self, batch: list[Waiting]) -> None:
        connection = self._connection
        if not connection.is_connected:
            await connection.connect()
            self.connects += 1
        shared = list(dict.fromkeys(behind for _, _, behind, _ in batch if behind))
        everything = b"".join([request for request, _, _, _ in batch])
        await connection.send_packed_command(everything + b"".join(map(packed, shared)), check_health=False)
        elsewhere, held = False, []
        for _, count, behind, future in batch:
            replies = [await self._read() for _ in range(count)]
            elsewhere = elsewhere or any(map(not_master, replies))
            if behind:
                held.append((replies, behind, future))
            elif not future.done():
                future.set_result(replies)
        last = {behind: [await self._read() for _ in behind] for behind in shared}
        for replies, behind, future in held:
            if not future.done():
                future.set_result([*replies, *last[behind]])
        if elsewhere or any(not_master(reply) for replies in last.values() for reply in replies):
            await connection.disconnect(nowait=True)

    async def _read(self) -> object:
        try:
            return await self._connection.read_response(disable_decoding=True, timeout=math.inf)
        except RedisError as error:
            if not self._connection.is_connected:
                raise
            return error

    async def _fail(self, batch: list[Waiting], error: Exception) -> None:
        """What was sent may or may not have been done; whoever waits has to know."""
        try:
            await self._connection.disconnect(nowait=True)
        finally:
            for *_, future in batch:
                if not future.done():
                    future.set_exception(error)

    async def close(self) -> None:
        """Close; calls still waiting fail with Unavailable."""
        if self._flusher is not None and not self._flusher.done():
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        await self._fail(self._waiting, Unavailable(self.address.where, "connection closed"))
        self._waiting = []
