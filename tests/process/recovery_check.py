"""The recovery check under test: it reads its verdict on a task from a file beside the ledger.

Runs inside scanners and reapers, with this directory as the current one. It notes each question in the ledger before it
answers. Without a file, the task has to run.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from recorder import note  # type: ignore[import-not-found]  # beside us, which is where the processes start
from sqlalchemy import text

if TYPE_CHECKING:
    from delayq import Task
    from sqlalchemy.ext.asyncio import AsyncConnection

VERDICTS = Path(os.environ["LEDGER"])


async def state(task: Task) -> str:
    note("asked", task)
    found = VERDICTS / f"{task.id}.verdict"
    return found.read_text() if found.exists() else "requeue"


def state_sync(task: Task) -> str:
    """Answer in a thread."""
    note("asked", task)
    return "requeue"


async def transfer(task: Task, connection: AsyncConnection) -> None:
    """A handler in its guard's transaction: it ends when a file says so."""
    note("start", task)
    await connection.execute(text("INSERT INTO transfers VALUES (:id)"), {"id": task.id})
    while not (VERDICTS / f"{task.id}.enough").exists():  # noqa: ASYNC110 -- a file announces nothing
        await asyncio.sleep(0.01)
