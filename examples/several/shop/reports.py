"""The handler of the queue `reports`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq import Task


async def send(task: Task) -> None:
    """Send the report of a month."""
    print(f"sent the report of {task.payload['month']}")
