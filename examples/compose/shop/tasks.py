"""What the shop does later."""

from __future__ import annotations

import os

from delayq import App

app = App(os.environ["SHOP_QUEUE"])


@app.task(max_attempts=8, timeout="2m", retry_delays=["10s", "1m", "10m"])
async def cancel_unpaid(order: int) -> None:
    """Cancel an order that was not paid in time."""
    print(f"order {order} cancelled", flush=True)
