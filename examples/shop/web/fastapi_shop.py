"""The shop's App in FastAPI: the lifespan opens its client, and a request schedules a task."""

from __future__ import annotations

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
    """Place an order, and cancel it in 30 minutes if it is unpaid by then."""
    task = cancel_unpaid.options(delay="30m", id=f"order-{order}", if_exists="keep")
    return {"task": (await task.schedule(order=order)).id}
