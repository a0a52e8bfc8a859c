"""The handler of the queue `reminders`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq import Task


async def remind(task: Task) -> None:
    """Remind a customer."""
    print(f"reminded {task.payload['to']}")
