"""Where a handler waits for the harness to strike: before its effect, during or after it.

Runs inside the workers. Only the one that is to be hit waits, and only with its first few tasks; the others pass.
What handlers say goes to one file per process, opened with O_APPEND, so a SIGKILL takes nothing back.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tests.faults.redis_time import RedisTime

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

Point = Literal["before", "during", "after"]

LEDGER = Path(os.environ["LEDGER"])
RELEASED = LEDGER / "released"
LOOK_SECONDS = 0.01

_file = os.open(LEDGER / f"{os.getpid()}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
_time = RedisTime(os.environ["LEDGER_CLOCK"], float(os.environ["LEDGER_CLOCK_PATIENCE"]))
_point, _left = os.environ.get("FAULTS_POINT"), int(os.environ.get("FAULTS_HITS", "0"))


async def note(event: str, task: Task) -> None:
    """One line as tests/process/fleet.py reads it; the time is Redis' own."""
    now_ms = await _time.now_ms()
    line = f"{event} {task.id} {task.token} {task.attempt} {task.due_ms} {now_ms} {os.getpid()}\n"
    os.write(_file, line.encode())


async def reach(point: Point, task: Task) -> None:
    """Announce the point and wait there, if this is what the harness waits for."""
    global _left  # noqa: PLW0603  one process, one count
    if point != _point or not _left or RELEASED.exists():
        return
    _left -= 1
    await note("held", task)
    while not RELEASED.exists():  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(LOOK_SECONDS)
