"""What the shop does on Kubernetes: a handler that takes its time, as calls to other services do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq import Task

MAIL_SECONDS = 0.5


def remind(task: Task) -> None:
    """Remind a customer of an order that is not paid. It stands for a mail server, which takes half a second."""
    time.sleep(MAIL_SECONDS)
    # In one piece: other threads print, too.
    print(f"reminded the customer of order {task.payload['order']}\n", end="", flush=True)
