"""C: how late handlers start at 200 tasks a second, with a scanner and a worker as separate processes.

Lateness is the worker's wall clock at the handler's first line less the due time. Redis runs on the same machine, so
both read the same clock, and a negative lateness is a task that was early.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from delayq import NewTask

from benchmarks.figures import Figure, Target, at_most, percentile
from benchmarks.stage import PAYLOAD

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.stage import Stage

PER_SECOND, SECONDS, PENDING = 200, 20, 100_000
NEAREST_MS, FARTHEST_MS = 500, 2500  # a producer schedules all the while, so due times fall at random
DAY_MS = 86_400_000


async def run(stage: Stage) -> list[Figure]:
    """Produce at a steady rate; the due times are as irregular as chance makes them."""
    stage.empty()
    seconds = SECONDS // 10 if stage.quick else SECONDS
    document, ledger = stage.document("note"), stage.file("late")
    async with stage.client() as client:
        await client.schedule_many(NewTask(PAYLOAD, delay_ms=DAY_MS + at) for at in range(PENDING))
    with stage.running("scanner", document), stage.running("worker", document, ledger):
        tasks = await _produce(stage, seconds)
        await stage.until_acked(tasks)
    return _figures(_lateness(ledger), stage)


async def _produce(stage: Stage, seconds: int) -> int:
    tasks, began = seconds * PER_SECOND, time.monotonic()
    async with stage.client() as client:
        for nth in range(tasks):
            await asyncio.sleep(max(0.0, began + nth / PER_SECOND - time.monotonic()))
            await client.schedule(PAYLOAD, delay_ms=random.randint(NEAREST_MS, FARTHEST_MS))
    return tasks


def _lateness(ledger: Path) -> list[float]:
    """Return milliseconds."""
    pairs = [line.split() for line in ledger.read_text().splitlines()]
    return [int(began_ns) / 1e6 - int(due_ms) for due_ms, began_ns in pairs]


def _figures(lateness: list[float], stage: Stage) -> list[Figure]:
    early = sum(each < 0 for each in lateness)
    return [
        _figure("lateness p50", percentile(lateness, 50), stage, at_most(1.5)),
        _figure("lateness p95", percentile(lateness, 95), stage),
        _figure("lateness p99", percentile(lateness, 99), stage, at_most(5)),
        _figure("lateness max", max(lateness), stage),
        Figure(
            bench="C", name=f"early, of {len(lateness):,}", unit="tasks", runs=(early,), target=at_most(0)
        ),
    ]


def _figure(name: str, value: float, stage: Stage, target: Target | None = None) -> Figure:
    return Figure(
        bench="C",
        name=name,
        unit="ms",
        runs=(value,),
        target=target,
        base=stage.ceiling.ping_ms,
        base_name="PING",
    )
