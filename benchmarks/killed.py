"""G: a worker is killed with 100 tasks in flight: how long until the last of them has run again.

The worst case on purpose: the leases are as fresh as they can be when their holder dies.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from delayq import NewTask

from benchmarks.figures import Figure, at_most
from benchmarks.handlers import NAP_SECONDS
from benchmarks.stage import PATIENCE_SECONDS, PAYLOAD

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.stage import Stage

TASKS, CONCURRENCY = 100, 100
LEASE_SECONDS, QUICK_LEASE_SECONDS = 30, 5  # the document's default, and one for a look


async def run(stage: Stage) -> list[Figure]:
    """Kill one worker while a second one has nothing to do."""
    stage.empty()
    lease_duration_seconds = QUICK_LEASE_SECONDS if stage.quick else LEASE_SECONDS
    document = stage.document("nap", concurrency=CONCURRENCY, lease_duration_seconds=lease_duration_seconds)
    ledger = stage.file("ledger")
    ledger.touch()
    with (
        stage.running("scanner", document),
        stage.running("worker", document, ledger) as victim,
        stage.running("worker", document, ledger) as heir,
    ):
        heir.pause()  # so that all tasks are the victim's
        async with stage.client() as client:
            await client.schedule_many(NewTask(PAYLOAD, delay_ms=0) for _ in range(TASKS))
        await _until(ledger, "began")
        heir.resume()
        killed_at = time.time()
        victim.kill()
        await _until(ledger, "ended")
    notes = _notes(ledger)
    begun, ended = max(notes["began"].values()) - killed_at, max(notes["ended"].values()) - killed_at
    twice = sum(len(times) > 1 for times in _all(ledger)["began"].values())
    base = float(lease_duration_seconds)
    return [
        Figure(
            bench="G",
            name="kill until the last began again",
            unit="s",
            runs=(begun,),
            target=at_most(lease_duration_seconds + 5),
            base=base,
            base_name="lease",
        ),
        Figure(
            bench="G",
            name=f"kill until the last ended ({NAP_SECONDS:g} s each)",
            unit="s",
            runs=(ended,),
            target=at_most(lease_duration_seconds + 5 + NAP_SECONDS),
            base=base,
            base_name="lease",
        ),
        Figure(bench="G", name="tasks that began twice", unit="tasks", runs=(twice,)),
    ]


def _all(ledger: Path) -> dict[str, dict[str, list[float]]]:
    """Return times by what happened and by task."""
    notes: dict[str, dict[str, list[float]]] = {"began": defaultdict(list), "ended": defaultdict(list)}
    for line in ledger.read_text().splitlines():
        task_id, what, at = line.split()
        notes[what][task_id].append(float(at))
    return notes


def _notes(ledger: Path) -> dict[str, dict[str, float]]:
    return {what: {task: max(times) for task, times in found.items()} for what, found in _all(ledger).items()}


async def _until(ledger: Path, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen := _all(ledger)[what]) < TASKS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(seen)} of {TASKS} tasks {what} within {PATIENCE_SECONDS:g} s")
        await asyncio.sleep(0.05)
