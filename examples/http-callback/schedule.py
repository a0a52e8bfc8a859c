"""Schedule orders 1 to 20 to be cancelled one to three seconds from now, on the Redis that `delayq run` started."""

from __future__ import annotations

from pathlib import Path

from delayq import SyncClient

URL_FILE = Path(__file__).parent / ".delayq" / "redis.url"

with SyncClient(URL_FILE.read_text(encoding="utf-8").strip(), queue="callbacks") as callbacks:
    for order in range(1, 21):
        task_id, delay_ms = f"order-{order}", 1_000 + 100 * order
        callbacks.schedule({"order": order}, delay_ms=delay_ms, task_id=task_id, if_exists="replace")
print("scheduled 20 tasks")
