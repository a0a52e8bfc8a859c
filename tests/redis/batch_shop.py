"""The App of test_batches.py."""

from __future__ import annotations

import asyncio

from delayq import App, BatchContext, Retry

CALLS: list[list[int]] = []
HELD = asyncio.Event()
POISON, SLOW = 13, 999

app = App()


@app.task(batch=100, max_attempts=3, retry_delays=["0ms"])
async def insert(context: BatchContext, rows: list[int]) -> None:
    assert [int(task.body) for task in context.tasks] == rows
    CALLS.append(rows)
    if SLOW in rows:
        await HELD.wait()
    if POISON in rows:
        raise ValueError("poison")


@app.task(batch=100, max_attempts=1, retry_delays=["0ms"])
def once(rows: list[int]) -> None:
    CALLS.append(rows)
    if POISON in rows:
        raise ValueError("poison")


@app.task(batch=40, batch_wait="10s", retry_delays=["0ms"])
async def full(rows: list[int]) -> list[Retry | None]:
    CALLS.append(rows)
    return [None for _ in rows]
