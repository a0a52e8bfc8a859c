"""What is measured with each number of shards: storing, handling, lateness, connections."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from delayq import NewTask

from benchmarks.figures import percentile
from benchmarks.shards.stage import PAYLOAD, Stage, cpu_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from delayq import SyncClient

    from tests.processes import Process

STORED, HANDLED, WARM_UP = 100_000, 60_000, 2000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WORKERS, CONCURRENCY = 2, 250
PER_SECOND, SECONDS, PENDING = 200, 10, 50_000
NEAREST_MS, FARTHEST_MS = 500, 2500


class Stored(NamedTuple):
    """One schedule_many."""

    per_second: float


class Handled(NamedTuple):
    """One backlog."""

    per_second: float
    workers_us: float  # of the processor's time, per task
    redis_us: float
    busiest_us: float  # of the server that had most to do


class Punctual(NamedTuple):
    """A steady rate."""

    p50_ms: float
    p99_ms: float
    early: int
    connections: int  # of one worker


def stored(stage: Stage) -> Stored:
    """Store far ahead, from one process."""
    rates = []
    for _ in range(stage.repeats):
        stage.empty()
        with stage.client() as client:
            client.counts()
            began = time.perf_counter()
            client.schedule_many(NewTask(dict(PAYLOAD), delay_ms=HOUR_MS + at) for at in range(STORED))
            rates.append(STORED / (time.perf_counter() - began))
    stage.empty()
    return Stored(median(rates))


def handled(stage: Stage) -> Handled:
    """Two workers get through a backlog that was stored while they stood still."""
    document = stage.document("noop", concurrency=CONCURRENCY)
    with ExitStack() as stack:
        workers = [stack.enter_context(stage.running("worker", document)) for _ in range(WORKERS)]
        client = stack.enter_context(stage.client())
        client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(WARM_UP))
        stage.until_acked(client, WARM_UP)
        runs = [_drained(stage, workers, client, WARM_UP + nth * HANDLED) for nth in range(stage.repeats)]
    stage.empty()
    return Handled(*(median(values) for values in zip(*runs, strict=True)))


def _drained(stage: Stage, workers: list[Process], client: SyncClient, done: int) -> Handled:
    for worker in workers:
        worker.pause()
    client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(HANDLED))
    own, servers, began = sum(map(cpu_seconds, workers)), stage.redis_seconds(), time.perf_counter()
    for worker in workers:
        worker.resume()
    stage.until_acked(client, done + HANDLED)
    took = time.perf_counter() - began
    used = [after - before for before, after in zip(servers, stage.redis_seconds(), strict=True)]
    each_us = 1e6 / HANDLED
    return Handled(
        HANDLED / took,
        (sum(map(cpu_seconds, workers)) - own) * each_us,
        sum(used) * each_us,
        max(used) * each_us,
    )


def punctual(stage: Stage) -> Punctual:
    """How late handlers begin, by the machine's clock, which is that of all servers here."""
    ledger, document = stage.file("late"), stage.document("note", concurrency=32)
    with stage.client() as client, stage.running("scanner", document):
        client.schedule_many(NewTask(PAYLOAD, delay_ms=DAY_MS + at) for at in range(PENDING))
        before = stage.connections()
        with stage.running("worker", document, ledger):
            connections = stage.connections() - before
            tasks = _produce(client)
            stage.until_acked(client, tasks)
    late = _lateness(ledger)
    stage.empty()
    early = sum(each < 0 for each in late)
    return Punctual(percentile(late, 50), percentile(late, 99), early, connections)


def _produce(client: SyncClient) -> int:
    tasks, began = SECONDS * PER_SECOND, time.monotonic()
    for nth in range(tasks):
        time.sleep(max(0.0, began + nth / PER_SECOND - time.monotonic()))
        client.schedule(PAYLOAD, delay_ms=random.randint(NEAREST_MS, FARTHEST_MS))
    return tasks


def _lateness(ledger: Path) -> list[float]:
    """Return milliseconds; a worker leaves its notes when it ends."""
    pairs = [line.split() for line in ledger.read_text().splitlines()]
    return [int(began_ns) / 1e6 - int(due_ms) for due_ms, began_ns in pairs]
