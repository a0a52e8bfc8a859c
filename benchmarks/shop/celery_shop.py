"""The shop of examples/shop as a Celery application; the broker's URL is in DELAYQ_REDIS_URL."""

from __future__ import annotations

import json
import os
import urllib.request

from celery import Celery

PUSH_URL = os.environ.get("SHOP_PUSH_URL", "")
app = Celery("shop", broker=os.environ.get("DELAYQ_REDIS_URL"))


@app.task(autoretry_for=(Exception,), max_retries=7)
def cancel_unpaid(order: int, reason: str = "unpaid") -> None:
    """Cancel an order that was not paid in time."""


@app.task
def remind(order: int, channel: str = "mail") -> None:
    """Remind a customer."""


@app.task
def report(day: str) -> None:
    """Write the report of a day."""


@app.task(autoretry_for=(Exception,), max_retries=2)
def refund(order: int, cents: int) -> None:
    """Pay the money back."""


@app.task
def push(order: int) -> None:
    """Call the HTTP service."""
    body = json.dumps({"order": order}).encode()
    request = urllib.request.Request(PUSH_URL, body, {"Delayq-Kind": "push", "Delayq-Attempt": "1"})  # noqa: S310
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 -- our own service
