"""One cell: transfers are scheduled, a fault strikes in their midst, and when all is over the database is asked."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq import NewTask

from tests.faults.bank import order
from tests.faults.crew import LEASE_SECONDS
from tests.faults.faults import HOUR_MS
from tests.faults.stage import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.faults import Fault
    from tests.faults.guards import GuardKind
    from tests.faults.lane import Lane
    from tests.process.fleet import Entry

LATE_SECONDS: Final = LEASE_SECONDS + 5
FIRST_MS: Final = 300
BETWEEN_MS: Final = 20
HIT_ONE_IN, MOST_HIT = 20, 10
"""Fewer than a worker has slots: the others go on."""
OVER_SECONDS: Final = 90.0
CLAIMED_BEFORE_MS: Final = 2 * LEASE_SECONDS * 1000
"""How long after Redis' clock went back a run may begin that was claimed before: the lease, and as much again."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one guard made of one fault."""

    guard: str
    fault: str
    expected: int
    hit: int
    """Tasks that were at the fault's point when it struck."""
    lost: int
    duplicated: int
    early: int
    late: int
    balanced: bool
    seconds: float


def play(lane: Lane, guard: GuardKind, fault: Fault, *, transfers: int, directory: Path) -> Cell:
    """Set up, strike, wait, judge."""
    began = time.monotonic()
    hits = min(max(1, transfers // HIT_ONE_IN), MOST_HIT)
    with Stage(lane, guard, fault, directory) as stage:
        stage.set_up(hits)
        due = _schedule(stage, transfers)
        stage.wait_held(hits)
        fault.strike(stage)
        stage.release()
        _wait_over(stage)
        truth = stage.bank.truth()
        runs = stage.crew.starts()
        return Cell(
            guard=guard.name,
            fault=fault.name,
            expected=transfers,
            hit=len(stage.held()),
            lost=transfers - truth.distinct,
            duplicated=truth.rows - truth.distinct,
            early=sum(any(_early(stage, run) for run in each) for each in runs.values()),
            late=sum(_late(each[0].at_ms - due[id_]) for id_, each in runs.items()),
            balanced=truth.balanced,
            seconds=round(time.monotonic() - began, 1),
        )


def _schedule(stage: Stage, transfers: int) -> dict[str, int]:
    """Return when each is due, by Redis' clock."""
    chance = random.Random()
    tasks = [
        NewTask(order(chance), delay_ms=FIRST_MS + nth * BETWEEN_MS, task_id=f"transfer-{nth}")
        for nth in range(transfers)
    ]
    with stage.crew.client() as client:
        return {each.id: each.due_ms for each in client.schedule_many(tasks)}


def _wait_over(stage: Stage) -> None:
    """Until nothing waits and nothing runs, not even a handler that has lost its lease."""
    with stage.redis.client() as redis:
        stage.crew.wait_drained(redis, timeout_s=OVER_SECONDS)
    for process in (stage.victim, stage.other):
        if process.alive:
            process.stop(timeout_s=OVER_SECONDS)


def _early(stage: Stage, run: Entry) -> bool:
    """By Redis' clock; what was claimed right before that went back is judged by what it had shown then."""
    now_ms, back_ms = run.at_ms, stage.stepped_back_ms
    if back_ms is not None and back_ms <= now_ms < back_ms + CLAIMED_BEFORE_MS:
        now_ms += HOUR_MS
    return now_ms < run.due_ms


def _late(ms: int) -> bool:
    """With the steps of Redis' clock taken out, which are whole hours."""
    return (ms + HOUR_MS // 2) % HOUR_MS - HOUR_MS // 2 > LATE_SECONDS * 1000
