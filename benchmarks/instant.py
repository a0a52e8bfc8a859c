"""D: 20,000 tasks due at one instant: how long until the last of them is done."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from delayq import NewTask

from benchmarks.figures import Figure, at_most
from benchmarks.stage import PAYLOAD

if TYPE_CHECKING:
    from benchmarks.stage import Stage

TASKS, WARM_UP, AHEAD_MS = 20_000, 2_000, 1500
REPEATS = 3  # most of each is waiting for the instant


async def run(stage: Stage) -> list[Figure]:
    """Let one worker, then two, meet the herd; a scanner wakes them."""
    figures = []
    for concurrency in stage.concurrencies:
        for processes in (1, 2):
            runs = await _with(stage, processes, concurrency)
            figures.append(_figure(f"{processes} × concurrency {concurrency}", runs, stage))
    return figures


async def _with(stage: Stage, processes: int, concurrency: int) -> list[float]:
    stage.empty()
    document = stage.document("noop", concurrency=concurrency)
    with ExitStack() as stack:
        stack.enter_context(stage.running("scanner", document))
        for _ in range(processes):
            stack.enter_context(stage.running("worker", document))
        async with stage.client() as client:
            await client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(WARM_UP))
        await stage.until_acked(WARM_UP)
        return [
            await _herd(stage, WARM_UP + nth * TASKS) for nth in range(1, min(stage.repeats, REPEATS) + 1)
        ]


async def _herd(stage: Stage, done: int) -> float:
    """Return seconds from the instant, by Redis' clock, until Redis has counted the last ack."""
    instant_ms = stage.server.now_ms() + AHEAD_MS
    async with stage.client() as client:
        await client.schedule_many(NewTask(PAYLOAD, due_ms=instant_ms) for _ in range(TASKS))
    return (await stage.until_acked(done)).now - instant_ms / 1000


def _figure(name: str, runs: list[float], stage: Stage) -> Figure:
    base = TASKS / stage.ceiling.batch_per_second
    return Figure(
        bench="D",
        name=f"{TASKS:,} at once, {name}",
        unit="s",
        runs=tuple(runs),
        target=at_most(0.5),
        base=base,
        base_name="raw store",
    )
