"""Schedule reminders for one to two seconds from now, on the Redis that `delayq run` started."""

from __future__ import annotations

from pathlib import Path

from delayq import SyncClient

URL_FILE = Path(__file__).parent / ".delayq" / "redis.url"
ADDRESSES = ["ann@example.org", "bob@example.org", "busy@example.org", "nobody"]

with SyncClient(URL_FILE.read_text(encoding="utf-8").strip(), queue="reminders") as reminders:
    for number, address in enumerate(ADDRESSES, start=1):
        # Bytes go to the command as they are; any other value would arrive as JSON.
        delay_ms, task_id = 1_000 + 250 * number, f"reminder-{number}"
        reminders.schedule(
            address.encode(),
            content_type="text/plain",
            delay_ms=delay_ms,
            task_id=task_id,
            if_exists="replace",
        )
print(f"scheduled {len(ADDRESSES)} tasks")
