"""Schedule a refund of 5.00 for each of twelve orders a second from now, on the Redis that `delayq run` started."""

from __future__ import annotations

from pathlib import Path

from delayq import SyncClient

URL_FILE = Path(__file__).parent / ".delayq" / "redis.url"
ORDERS, CUSTOMERS, CENTS = 12, 3, 500

with SyncClient(URL_FILE.read_text(encoding="utf-8").strip(), queue="refunds") as refunds:
    for order in range(1, ORDERS + 1):
        payload = {
            "order": order,
            "customer": order % CUSTOMERS + 1,
            "cents": CENTS,
            "breaks": order % 4 == 0,
        }
        refunds.schedule(payload, delay_ms=1_000, task_id=f"refund-{order}", if_exists="keep")
print(f"scheduled {ORDERS} refunds")
