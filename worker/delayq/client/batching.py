"""Groups calls of Client.schedule: those that arrive during a round trip go out together in the next one.

There is no timer, so a single call waits for nothing. As soon as ENOUGH calls wait, they go out though the round trip
is still under way: Redis works while the client encodes the next calls. A group has one shard and one `if_exists`, so
that a server that does not answer delays only the calls for its own shards. A group waits for one round trip only:
tasks that must be sent again, to another shard or after an outage, delay no other call. Concurrent calls about one ID
have no order.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import CHUNK_BYTES
from delayq.client.enqueue import Results
from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.client.encoding import Chunk, NewTask
    from delayq.client.enqueue import IfExists, TaskWriter
    from delayq.client.routing import Operation
    from delayq.connection import AsyncConnection
    from delayq.protocol.results import Scheduled
    from delayq.protocol.shard_map import ShardMap


ENOUGH = 32  # calls for a round trip: in a larger one, each costs hardly less


class Group(NamedTuple):
    """What the calls of one round trip have in common."""

    shard_map: ShardMap
    shard: int
    passing: bool
    if_exists: IfExists


Waiting = tuple["Chunk", "asyncio.Future[Scheduled]"]


class ScheduleBatches:
    """The calls of one open client."""

    def __init__(
        self, writer: TaskWriter, run: Callable[[Operation[Results], AsyncConnection], Awaitable[Results]]
    ) -> None:
        """`run` performs an operation's I/O."""
        self._writer, self._run = writer, run
        # Of the groups with a round trip under way. Each round trip has a list of its own.
        self._waiting: dict[Group, list[Waiting]] = {}
        self._tasks = set[asyncio.Task[None]]()

    async def schedule(self, connection: AsyncConnection, task: NewTask, if_exists: IfExists) -> Scheduled:
        """Store one task: at once, or behind the round trip of its group that is under way.

        With `durability`, always at once: a round trip takes up to a second, and the connection shares confirmations.
        If a call raises Unavailable before its round trip (it could not read the shard map), the calls that wait for it
        raise Unavailable too, and are not stored: with tries of their own they would wait twice as long.
        """
        chunk = self._writer.chunk(task, if_exists)
        if self._writer.confirms:
            return (await self._run(self._writer.store(chunk, if_exists), connection)).one()
        group = Group(chunk.shard_map, chunk.shard, chunk.passing, if_exists)
        waiting = self._waiting.get(group)
        if waiting is not None:
            future: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
            waiting.append((chunk, future))
            if len(waiting) == ENOUGH:
                self._start_next(connection, group, waiting)
            return await future
        behind = self._waiting[group] = []
        start_next = partial(self._start_next, connection, group, behind)
        try:
            results = await self._run(self._writer.store(chunk, if_exists, Results(), start_next), connection)
        except Unavailable as error:
            self._fail_waiting(group, behind, error)
            raise
        finally:
            start_next()
        return results.one()

    def _start_next(self, connection: AsyncConnection, group: Group, behind: list[Waiting]) -> None:
        """Send the calls `behind` a round trip, unless that was done already."""
        if self._waiting.get(group) is not behind:
            return
        batch, rest = _split(behind)
        if not batch:
            del self._waiting[group]
            return
        self._waiting[group] = rest
        task = asyncio.get_running_loop().create_task(self._store(connection, group, batch, rest))
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)

    async def _store(
        self, connection: AsyncConnection, group: Group, batch: list[Waiting], behind: list[Waiting]
    ) -> None:
        results = Results()

        def recorded() -> None:
            _settle(batch, results)
            self._start_next(connection, group, behind)

        try:
            await self._run(
                self._writer.store(_joined(batch), group.if_exists, results, recorded), connection
            )
        except BaseException as error:
            _settle(batch, results)
            _fail(batch, error)
            if isinstance(error, Unavailable):
                self._fail_waiting(group, behind, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._start_next(connection, group, behind)

    def _fail_waiting(self, group: Group, behind: list[Waiting], error: Unavailable) -> None:
        if self._waiting.get(group) is behind:
            _fail(behind, error)


def _split(waiting: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """Return the next batch, about CHUNK_BYTES at most, and the rest. Cancelled calls are left out."""
    batch, size = list[Waiting](), 0
    for at, each in enumerate(waiting):
        if each[1].done():
            continue
        if size > CHUNK_BYTES:
            return batch, waiting[at:]
        batch.append(each)
        size += len(each[0].flat[2])
    return batch, []


def _joined(batch: list[Waiting]) -> Chunk:
    flat = [item for chunk, _ in batch for item in chunk.flat]
    return batch[0][0]._replace(positions=list(range(len(batch))), flat=flat)


def _settle(batch: list[Waiting], results: Results) -> None:
    """Set the futures of the tasks that have a result."""
    for at, (_, future) in enumerate(batch):
        if future.done():
            continue
        if at in results.refused:
            future.set_exception(results.refused[at])
        elif at in results.stored:
            future.set_result(results.stored[at])


def _fail(batch: list[Waiting], error: BaseException) -> None:
    """Fail the calls that have no result."""
    for _, future in batch:
        if not future.done():
            future.set_exception(_copy(error)) if isinstance(error, Exception) else future.cancel()


def _copy(error: Exception) -> Exception:
    """Return an error for one caller, because raising an object in several coroutines mixes their tracebacks.

    copy.copy() would call __init__ with other arguments than these classes take.
    """
    if not isinstance(error, DelayQError):
        return error
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error
    return copied
