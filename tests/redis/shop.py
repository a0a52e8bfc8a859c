"""The App of test_kinds.py, and the same App one version later."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from delayq import App, Bury, Context, Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RAN: list[tuple[str, object]] = []


@asynccontextmanager
async def lifespan() -> AsyncIterator[str]:
    RAN.append(("began", ""))
    yield "state"
    RAN.append(("ended", ""))


app = App(lifespan=lifespan)


@app.task
async def remind(ctx: Context, order: int) -> None:
    RAN.append(("remind", (order, ctx.state, ctx.task.id, ctx.task.attempt)))
    await refund.options(id=f"order-{order}").schedule(order)


@app.task(max_attempts=2, retry_delays=["0ms"])
def refund(order: int) -> None:
    RAN.append(("refund", order))
    if order < 0:
        raise Retry("not yet")


@app.task(timeout="1s")
async def push(url: str) -> None:
    RAN.append(("push", url))
    await asyncio.sleep(60)


@app.task
async def report(day: str) -> None:
    raise Bury(f"no report of {day}")


newer = App()
newer.task(remind.function)
newer.task(name="refund", version=2)(refund.function)
