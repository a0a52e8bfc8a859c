"""A: how many tasks one process stores in a second, building them included."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from delayq import NewTask

from benchmarks.figures import Figure, at_least
from benchmarks.stage import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq import Client

    from benchmarks.stage import Stage

TASKS, SINGLES, COROUTINES = 100_000, 5_000, 100
HOUR_MS = 3_600_000


async def run(stage: Stage) -> list[Figure]:
    """Schedule far ahead, so that nothing but storing happens."""
    tasks = TASKS // 5 if stage.quick else TASKS
    many = [await _async_many(stage, tasks) for _ in range(stage.repeats)]
    sync = [_sync_many(stage, tasks) for _ in range(stage.repeats)]
    alone = [await _singles(stage, 1) for _ in range(stage.repeats)]
    together = [await _singles(stage, COROUTINES) for _ in range(stage.repeats)]
    batch, single = stage.ceiling.batch_per_second, 1000 / stage.ceiling.ping_ms
    return [
        _figure("Client.schedule_many", many, batch, "raw batch", promised=100_000),
        _figure("SyncClient.schedule_many", sync, batch, "raw batch", promised=100_000),
        _figure("Client.schedule, 1 coroutine", alone, single, "PING"),
        _figure(
            f"Client.schedule, {COROUTINES} coroutines",
            together,
            stage.ceiling.single_per_second,
            "raw single",
        ),
    ]


def _figure(
    name: str, runs: list[float], base: float, base_name: str, *, promised: float | None = None
) -> Figure:
    target = at_least(promised) if promised else None
    return Figure(
        bench="A",
        name=name,
        unit="tasks/s",
        runs=tuple(runs),
        target=target,
        base=base,
        base_name=base_name,
    )


def _tasks(count: int) -> Iterable[NewTask]:
    """Yield tasks with ids drawn and due times a millisecond apart, each with a payload object of its own."""
    return (NewTask(dict(PAYLOAD), delay_ms=HOUR_MS + at) for at in range(count))


async def _async_many(stage: Stage, tasks: int) -> float:
    stage.empty()
    async with stage.client() as client:
        await client.counts()  # connected before the clock starts
        began = time.perf_counter()
        await client.schedule_many(_tasks(tasks))
        return tasks / (time.perf_counter() - began)


def _sync_many(stage: Stage, tasks: int) -> float:
    stage.empty()
    with stage.sync_client() as client:
        client.counts()
        began = time.perf_counter()
        client.schedule_many(_tasks(tasks))
        return tasks / (time.perf_counter() - began)


async def _singles(stage: Stage, coroutines: int) -> float:
    stage.empty()
    each = SINGLES // coroutines
    async with stage.client() as client:
        await client.counts()
        began = time.perf_counter()
        await asyncio.gather(*(_one_by_one(client, each) for _ in range(coroutines)))
        return each * coroutines / (time.perf_counter() - began)


async def _one_by_one(client: Client, tasks: int) -> None:
    for at in range(tasks):
        await client.schedule(dict(PAYLOAD), delay_ms=HOUR_MS + at)
