"""Refunds: money that must not be paid twice, however often a task is delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from delayq import Task
    from sqlalchemy import Connection

PAY = text("UPDATE accounts SET cents = cents + :cents WHERE customer = :customer")


class GatewayError(Exception):
    """The payment gateway broke after the money was written down."""


def refund(task: Task, connection: Connection) -> None:
    """Pay. The parameter `connection` is the guard's open transaction: delayq commits it, or takes all of it back."""
    order = task.payload
    connection.execute(PAY, {"customer": order["customer"], "cents": order["cents"]})
    if order.get("breaks") and task.attempt == 1:
        raise GatewayError(f"refund of order {order['order']} broke off")  # the update above never happened
