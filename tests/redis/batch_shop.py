"""The App of test_batches.py."""

from __future__ import annotations

import asyncio
from typing import Any

from delayq import App, BatchContext, Retry

from tests.guards.sql_bank import EFFECT

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


guarded = App()


@guarded.task(batch=100, max_attempts=2, retry_delays=["0ms"])
async def pay(context: BatchContext[Any, Any], orders: list[int]) -> list[Exception | None]:
    CALLS.append(orders)
    rows = [{"id": str(order), "token": 1} for order in orders if order != POISON]
    if rows:
        await context.connection.execute(EFFECT, rows)
    return [ValueError("poison") if order == POISON else None for order in orders]
