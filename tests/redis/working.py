"""A worker's exchanges without its other services: they look for due tasks by themselves, or when a test hints."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.connection import Address, AsyncConnection
from delayq.protocol.commands import Broker
from delayq.service.counters import WorkerTally
from delayq.service.loop import Loop
from delayq.service.shard_groups import Lane
from delayq.worker.claim_loop import Exchange
from delayq.worker.executor import Runner
from delayq.worker.slots import Desk, Slots

from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.contract import DelayQueue
    from delayq.protocol.envelope import Task


LONGEST_LOOK_MS = 60_000  # a worker of a test looks when it is hinted, and otherwise not


def queue(concurrency: int, *, look_ms: int = 100, **delivery: object) -> DelayQueue:
    return document(
        {"python": {"callable": "unused:unused"}},
        worker={"concurrency": concurrency},
        delivery={"maxBlockMilliseconds": look_ms, **delivery},
    )


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
    """A worker's exchanges: a lane for each server, with one shard."""
    broker = Broker("orders", shards=len(urls))
    tally = WorkerTally("worker", "orders")
    slots = Slots(queue.spec, tally)
    runner = Runner(handler.handle, queue.spec.delivery, tally)
    addresses = [replace(Address.from_url(url), timeout_seconds=timeout_seconds) for url in urls]
    connections = [AsyncConnection(address) for address in addresses]
    loops = [
        Loop(Exchange(Desk(slots, Lane(broker, shard)), broker, connection, runner), tally)
        for shard, connection in enumerate(connections)
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
        await asyncio.gather(*(connection.close() for connection in connections))
