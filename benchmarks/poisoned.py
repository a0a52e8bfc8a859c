"""G, too: 31 healthy tasks beside one that ends its worker's process; every other buried task is a healthy one.

A worker that died is started again at once, as Kubernetes does.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from delayq import NewTask
from delayq.protocol.keys import Keys

from benchmarks import killed
from benchmarks.figures import Figure, at_most
from benchmarks.stage import PATIENCE_SECONDS, QUEUE

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from benchmarks.stage import Stage

TASKS, LEASE_SECONDS = 32, 5


async def after_killed(stage: Stage) -> list[Figure]:
    """Measure both parts of G."""
    return [*await killed.run(stage), *await run(stage)]


async def run(stage: Stage) -> list[Figure]:
    """Let one worker at a time run until each task is done or dead."""
    stage.empty()
    document = stage.document("poisoned", lease_duration_seconds=LEASE_SECONDS)
    async with stage.client() as client:
        payloads = ["poison" if n == TASKS // 2 else "healthy" for n in range(TASKS)]
        await client.schedule_many(NewTask(each, delay_ms=0) for each in payloads)
    began = time.monotonic()
    with stage.running("scanner", document), stage.server.client() as redis:
        died, healthy_at = await _work(stage, document, redis)
        buried = int(redis.zcard(Keys("delayq", QUEUE, 0).dlq))
    figures = (
        ("healthy tasks buried beside a poison message", "tasks", max(0, buried - 1), at_most(0)),
        ("workers that a poison message ended", "workers", died, None),
        ("until the last healthy task was settled", "s", healthy_at - began, None),
    )
    return [
        Figure(bench="G", name=name, unit=unit, runs=(float(value),), target=target)
        for name, unit, value, target in figures
    ]


async def _work(stage: Stage, document: Path, redis: Any) -> tuple[int, float]:  # noqa: ANN401 -- see stage.py
    """Return how many workers died, and when all tasks but the poison message were done or dead."""
    died, healthy_at, deadline = 0, 0.0, time.monotonic() + PATIENCE_SECONDS
    keys = Keys("delayq", QUEUE, 0)
    while time.monotonic() < deadline:
        with ExitStack() as stack:
            worker = stack.enter_context(stage.running("worker", document))
            while worker.alive and time.monotonic() < deadline:
                left = redis.hlen(keys.tasks) - redis.zcard(keys.dlq)
                healthy_at = healthy_at or (time.monotonic() if left <= 1 else 0.0)
                if not left:
                    return died, healthy_at
                await asyncio.sleep(0.05)
            died += not worker.alive
    raise TimeoutError(f"{died} workers died, and tasks are left after {PATIENCE_SECONDS:g} s")
