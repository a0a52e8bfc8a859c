"""The web application: an order schedules its own cancellation, and a payment takes that back."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from shop.tasks import app as tasks  # type: ignore[import-not-found]  # not where mypy looks
from shop.tasks import cancel_unpaid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Hold the connection to Redis for as long as the application runs."""
    async with tasks:
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/orders/{order}", status_code=201)
async def place(order: int) -> dict[str, str]:
    """Place an order. A second click finds the task of the first one."""
    task = cancel_unpaid.options(delay=os.environ["SHOP_PAY_WITHIN"], id=f"order-{order}", if_exists="keep")
    return {"task": (await task.schedule(order=order)).id}


@web.post("/orders/{order}/payment")
async def pay(order: int) -> dict[str, str]:
    """Pay an order: its cancellation is cancelled, unless it is too late."""
    return {"cancellation": await cancel_unpaid.cancel(f"order-{order}")}


@web.get("/readyz")
async def ready() -> dict[str, str]:
    """Answer the health check of compose.yaml."""
    return {}
