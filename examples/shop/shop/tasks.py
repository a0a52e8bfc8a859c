"""What the shop does later: four kinds of task in Python. The fifth, push, is an HTTP service, see queue.yaml."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from delayq import App, Bury, Context

from shop.log_context import LogContext, log_context  # type: ignore[import-not-found]  # not where mypy looks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOCUMENT = Path(__file__).parents[1] / "queue.yaml"
IN_EVERY_LINE = LogContext()
log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Begin and end with the worker, which has configured logging."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(IN_EVERY_LINE)
    yield


# Without a URL: spec.redis of the document.
app = App(DOCUMENT, url=os.environ.get("DELAYQ_REDIS_URL"), lifespan=lifespan)
app.around_run(log_context)


@app.task(max_attempts=8, timeout="2m", retry_delays=["10s", "1m", "10m"])
async def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None:
    """Cancel an order that was not paid in time, and schedule what follows from it."""
    print(f"order {order} cancelled: {reason}", flush=True)
    await refund.options(delay="1s", id=f"order-{order}").schedule(order=order, cents=995)


@app.task
async def remind(order: int, channel: str = "mail") -> None:
    """Remind a customer."""
    print(f"reminder about order {order} by {channel}", flush=True)


@app.schedule(cron="0 2 * * *", time_zone="Europe/Lisbon", payload={"day": "yesterday"})
@app.task(timeout="10m")
def report(day: str) -> None:
    """Write the report of a day. A plain function: it runs in a thread of the worker."""
    print(f"report of {day} written", flush=True)


@app.task(max_attempts=3, retry_delays=["1s"])
async def refund(context: Context, order: int, cents: int) -> None:
    """Pay the money back; the gateway is down at the first attempt."""
    if cents <= 0:
        raise Bury(f"order {order}: nothing to refund")
    if context.task.attempt == 1:
        log.warning("the refund is late")
        raise ConnectionError("the gateway restarts")
    print(f"order {order} refunded: {cents / 100:.2f}", flush=True)
