"""Groups calls of Client.schedule: those that arrive during a round trip go out together in the next one.

There is no timer, so a single call waits for nothing. A group has one shard and one `if_exists`, so that a server that
does not answer delays only the calls for its own shards.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from delayq.client.encoding import CHUNK, CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.client.encoding import Chunk, NewTask
    from delayq.client.enqueue import IfExists, Results, TaskWriter
    from delayq.client.routing import Operation
    from delayq.connection import AsyncConnection
    from delayq.protocol.results import Scheduled
    from delayq.protocol.shard_map import ShardMap


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
        self._waiting: dict[Group, list[Waiting]] = {}  # of the groups with a round trip under way
        self._tasks = set[asyncio.Task[None]]()

    async def schedule(self, connection: AsyncConnection, task: NewTask, if_exists: IfExists) -> Scheduled:
        """Store one task: at once, or behind the round trip of its group that is under way."""
        chunk = self._writer.chunk(task)
        group = Group(chunk.shard_map, chunk.shard, chunk.passing, if_exists)
        waiting = self._waiting.get(group)
        if waiting is not None:
            future: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
            waiting.append((chunk, future))
            return await future
        self._waiting[group] = []
        try:
            results = await self._run(self._writer.store(chunk, if_exists), connection)
        finally:
            self._start_next(connection, group)
        return results.one(0)

    def _start_next(self, connection: AsyncConnection, group: Group) -> None:
        batch, self._waiting[group] = _split(self._waiting[group])
        if not batch:
            del self._waiting[group]
            return
        task = asyncio.get_running_loop().create_task(self._store(connection, group, batch))
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)

    async def _store(self, connection: AsyncConnection, group: Group, batch: list[Waiting]) -> None:
        try:
            results = await self._run(self._writer.store(_joined(batch), group.if_exists), connection)
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for at, (_, future) in enumerate(batch):
                if not future.done():
                    _settle(future, results, at)
        finally:
            self._start_next(connection, group)


def _split(waiting: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """Return the next batch, at most one chunk, and the rest. Calls that were cancelled meanwhile are left out."""
    batch, size = list[Waiting](), 0
    for at, each in enumerate(waiting):
        if each[1].done():
            continue
        if len(batch) == CHUNK or size > CHUNK_BYTES:
            return batch, waiting[at:]
        batch.append(each)
        size += len(each[0].flat[2])
    return batch, []


def _joined(batch: list[Waiting]) -> Chunk:
    flat = [item for chunk, _ in batch for item in chunk.flat]
    return batch[0][0]._replace(positions=list(range(len(batch))), flat=flat)


def _settle(future: asyncio.Future[Scheduled], results: Results, at: int) -> None:
    try:
        future.set_result(results.one(at))
    except Exception as error:  # noqa: BLE001 -- it is the caller's
        future.set_exception(error)
