"""A worker's exchanges without its other services: they look for due tasks by themselves, or when a test hints."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, AsyncConnection
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.service.counters import WorkerCounters
from delayq.service.loop import Loop
from delayq.service.shard_groups import ShardGroup
from delayq.worker.claim_loop import ClaimLoop
from delayq.worker.executor import Executor
from delayq.worker.slots import GroupState, Slots

from tests.servers import PREFERRED, RedisServer
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.handlers.base import HandlerCall
    from delayq.protocol.commands import Call
    from delayq.protocol.envelope import Task
    from delayq.protocol.write_durability import ConfirmCommands


NO_LIMITS = Limits()
LONGEST_LOOK_MS = 60_000  # a worker of a test looks when it is hinted, and otherwise not


def queue(concurrency: int, *, look_ms: int = 100, **delivery: object) -> DelayQueue:
    return document(
        {"python": {"callable": "unused:unused"}},
        worker={"concurrency": concurrency},
        delivery={"maxBlockMilliseconds": look_ms, **delivery},
    )


@contextmanager
def own_servers(directory: Path, count: int) -> Iterator[list[RedisServer]]:
    """Servers of a test that pauses them."""
    found = [RedisServer.start(PREFERRED, dir=directory / f"{nth}") for nth in range(count)]
    try:
        yield found
    finally:
        for server in found:
            server.resume()
            server.stop()


class Recorded(AsyncConnection):
    """Records the calls of each round trip, whose answers a test may hold back."""

    def __init__(self, url: str) -> None:
        super().__init__(Address.from_url(url))
        self.trips: list[list[Call[Any]]] = []
        self.asked, self.answering = asyncio.Event(), asyncio.Event()
        self.answering.set()

    @property
    def scripts(self) -> list[tuple[str, int]]:
        """Of all calls, the script and the shard."""
        return [(call.script.name, call.keys.shard) for calls in self.trips for call in calls]

    async def answers(self, calls: Sequence[Call[Any]], behind: ConfirmCommands | None = None) -> list[Any]:
        self.trips.append(list(calls))
        self.asked.set()
        await self.answering.wait()
        return await super().answers(calls, behind)


class Handler:
    """Writes down what it begins, and ends when it may."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.attempts: set[int] = set()
        self.may_end = asyncio.Event()

    async def handle(self, task: Task) -> None:
        self.began.append(task.id)
        self.attempts.add(task.attempt)
        await self.may_end.wait()


@asynccontextmanager
async def working(
    urls: list[str], handler: Handler, queue: DelayQueue, *, timeout_seconds: float = 60.0
) -> AsyncIterator[Slots]:
    """A worker's exchanges: a shard group for each server, with one shard."""
    commands = Commands("orders", shards=len(urls))
    counters = WorkerCounters("worker", "orders")
    slots = Slots(queue.spec, counters)
    runner = Executor(handler.handle, queue.spec.delivery, counters)
    addresses = [replace(Address.from_url(url), timeout_seconds=timeout_seconds) for url in urls]
    connections = [[AsyncConnection(address) for _ in range(2)] for address in addresses]
    loops = [
        Loop(ClaimLoop(GroupState(slots, ShardGroup(commands, shard)), commands, pair, runner), counters)
        for shard, pair in enumerate(connections)
    ]
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    try:
        yield slots
    finally:
        handler.may_end.set()
        for loop, task in zip(loops, tasks, strict=True):
            loop.stop()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for pair in connections for connection in pair))


async def quickly(_: Task) -> None:
    pass


async def ended(group_state: GroupState) -> None:
    """Wait until every handler has ended."""
    await asyncio.wait([running.handling for running in group_state.running.values() if running.handling])


async def finish(loop: ClaimLoop, group_state: GroupState) -> float:
    """Step until all tasks that may begin have ended; returns the pause after the last step."""
    pause = 0.0
    while not pause or group_state.running or group_state.has_work:
        pause = await loop.step()
        await asyncio.sleep(0)  # as the service loop does: handlers continue
    return pause


@asynccontextmanager
async def loop_of(
    commands: Commands,
    url: str,
    only: int | None = None,
    *,
    slots: int = 32,
    call: HandlerCall = quickly,
    overlapping: bool = False,
    limits: Limits = NO_LIMITS,
) -> AsyncIterator[tuple[ClaimLoop, GroupState, Recorded]]:
    """A claim loop whose steps a test makes. `limits` are those of `commands`."""
    counters = WorkerCounters("worker", "q")
    document = replace(queue(slots, look_ms=LONGEST_LOOK_MS).spec, limits=limits)
    connection, second = Recorded(url), Recorded(url)
    connections = [connection, second] if overlapping else [connection]
    group_state = GroupState(Slots(document, counters), ShardGroup(commands, only))
    exchange = ClaimLoop(group_state, commands, connections, Executor(call, document.delivery, counters))
    try:
        await exchange.step()  # the first claim of a shard brings no task, but Redis' time
        connection.trips.clear()
        yield exchange, group_state, connection
    finally:
        await asyncio.gather(connection.close(), second.close())
