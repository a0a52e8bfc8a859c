"""The handlers that the benchmarks' workers run: imported by `delayq worker`, as a user's would be."""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq import Task

LEDGER = "BENCH_LEDGER"  # names the file that a worker leaves its notes in
NAP_SECONDS = 5.0
_noted: list[tuple[int, int]] = []


async def noop(task: Task) -> None:
    """Do nothing: what is left to measure is delayq."""


async def note(task: Task) -> None:
    """Keep when the task was due and when it began; written out at exit, so that no file is in the way."""
    _noted.append((task.due_ms, time.time_ns()))


async def nap(task: Task) -> None:
    """Take five seconds, and say when they began and ended at once: a killed worker writes nothing at exit."""
    _append(f"{task.id} began {time.time()}\n")
    await asyncio.sleep(NAP_SECONDS)
    _append(f"{task.id} ended {time.time()}\n")


async def poisoned(task: Task) -> None:
    """Take a second, or end the process."""
    if task.payload == "poison":
        os._exit(1)
    await asyncio.sleep(1)


def _append(line: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(line)


@atexit.register
def _write_out() -> None:
    if _noted:
        lines = [f"{due_ms} {began_ns}\n" for due_ms, began_ns in _noted]
        Path(os.environ[LEDGER]).write_text("".join(lines))
