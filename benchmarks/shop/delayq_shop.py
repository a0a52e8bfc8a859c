"""The App of the shop for the benchmark: the kinds of examples/shop, which print nothing and never fail."""

from __future__ import annotations

from delayq import App

app = App()


@app.task(max_attempts=8)
async def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None:
    """Cancel an order that was not paid in time."""


@app.task
async def remind(order: int, channel: str = "mail") -> None:
    """Remind a customer."""


@app.task
def report(day: str) -> None:
    """Write the report of a day."""


@app.task(max_attempts=3)
async def refund(order: int, cents: int) -> None:
    """Pay the money back."""
