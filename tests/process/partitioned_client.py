"""A client on the wrong side of a cut: schedules until it must stop, and reports the outcome of each task.

Arguments: URL, queue, how many replicas have to confirm (0: none). One line for each task: its id, and `confirmed` or
the name of the error.
"""

from __future__ import annotations

import itertools
import sys
import time

from delayq import Durability, SyncClient
from delayq.errors import DelayQError


def main(url: str, queue: str, replicas: str) -> None:
    wanted = Durability("Replicated", replicas=int(replicas), timeout_ms=300) if int(replicas) else None
    with SyncClient(url, queue=queue, durability=wanted) as client:
        for nth in itertools.count():
            task_id = f"partitioned{replicas}-{nth}"
            try:
                client.schedule(None, delay_ms=0, task_id=task_id)
            except DelayQError as error:
                print(task_id, type(error).__name__, str(error)[:80], flush=True)
            else:
                print(task_id, "confirmed", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
