"""B: how fast real worker processes get through a backlog of no-op tasks.

The workers are up and idle, then stopped (SIGSTOP) while the backlog is stored, then continued: the clock runs from
that signal until Redis has counted the last ack, so neither their start nor the storing is in the figure.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from delayq import NewTask

from benchmarks.figures import Figure, at_least
from benchmarks.stage import PAYLOAD, cpu_seconds

if TYPE_CHECKING:
    from benchmarks.stage import Stage
    from tests.processes import Process

TASKS, WARM_UP = 20_000, 2_000
PROMISED = {1: 50_000, 2: 60_000}


class Drained(NamedTuple):
    """One run."""

    per_second: float
    worker_us: float  # CPU time per task, of all workers together
    redis_us: float


async def run(stage: Stage) -> list[Figure]:
    """Drain with one and with two processes, at each concurrency."""
    figures: list[Figure] = []
    for concurrency in stage.concurrencies:
        for processes in PROMISED:
            figures += await _with(stage, processes, concurrency)
    return figures


async def _with(stage: Stage, processes: int, concurrency: int) -> list[Figure]:
    stage.empty()
    document = stage.document("noop", concurrency=concurrency)
    with ExitStack() as stack:
        workers = [stack.enter_context(stage.running("worker", document)) for _ in range(processes)]
        async with stage.client() as client:
            await client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(WARM_UP))
        await stage.until_acked(WARM_UP)
        done = WARM_UP
        runs = []
        for _ in range(stage.repeats):
            runs.append(await _drain(stage, workers, done))
            done += TASKS
    return _figures(f"{processes} × concurrency {concurrency}", runs, stage, promised=PROMISED[processes])


async def _drain(stage: Stage, workers: list[Process], done: int) -> Drained:
    for worker in workers:
        worker.pause()
    async with stage.client() as client:
        await client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(TASKS))
    with stage.server.client() as redis:
        before, redis_before = sum(map(cpu_seconds, workers)), cpu_seconds(stage.server.process)
        began = stage.progress(redis).now
    for worker in workers:
        worker.resume()
    ended = (await stage.until_acked(done + TASKS)).now
    worker_seconds = sum(map(cpu_seconds, workers)) - before
    redis_seconds = cpu_seconds(stage.server.process) - redis_before
    return Drained(TASKS / (ended - began), worker_seconds / TASKS * 1e6, redis_seconds / TASKS * 1e6)


def _figures(name: str, runs: list[Drained], stage: Stage, *, promised: float) -> list[Figure]:
    return [
        Figure(
            bench="B",
            name=f"drain, {name}",
            unit="tasks/s",
            runs=tuple(run.per_second for run in runs),
            target=at_least(promised),
            base=stage.ceiling.batch_per_second,
            base_name="raw batch",
        ),
        Figure(
            bench="B",
            name=f"CPU of the workers, {name}",
            unit="µs/task",
            runs=tuple(run.worker_us for run in runs),
        ),
        Figure(
            bench="B", name=f"CPU of Redis, {name}", unit="µs/task", runs=tuple(run.redis_us for run in runs)
        ),
    ]
