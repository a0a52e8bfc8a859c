"""Schedules one task of each kind: `DELAYQ_REDIS_URL=$(cat .delayq/redis.url) python plan.py`."""

from __future__ import annotations

import asyncio

from shop.tasks import (  # type: ignore[import-not-found]  # beside this file: not where mypy looks
    app,
    cancel_unpaid,
    remind,
    report,
)


async def main() -> None:
    """Schedule; the refund follows from the cancelled order."""
    async with app:
        await cancel_unpaid.options(delay="2s", id="order-7").schedule(order=7)
        await remind.options(delay="1s", id="order-7").schedule(order=7, channel="sms")
        await report.schedule(day="2026-11-25")
        await app.client.schedule({"order": 7}, delay_ms=1000, kind="push")


asyncio.run(main())
