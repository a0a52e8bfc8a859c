"""The shop's App in Flask: schedule_sync connects with the first request of each process."""

from __future__ import annotations

from flask import Flask
from shop.tasks import cancel_unpaid  # type: ignore[import-not-found]  # not where mypy looks

web = Flask(__name__)


@web.post("/orders/<int:order>")
def place(order: int) -> tuple[dict[str, str], int]:
    """Place an order, and cancel it in 30 minutes if it is unpaid by then."""
    task = cancel_unpaid.options(delay="30m", id=f"order-{order}", if_exists="keep")
    return {"task": task.schedule_sync(order=order).id}, 201
