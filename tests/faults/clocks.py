"""A clock is set an hour forward or back: of the worker's machine, or of Redis."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from tests.faults.crew import LEASE_SECONDS
from tests.faults.fault import HOUR_MS, Fault
from tests.faults.stage import OUTAGE_SECONDS

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def step_worker(stage: Stage, ms: int) -> None:
    stage.set_victims_clock(ms)
    time.sleep(OUTAGE_SECONDS)
    stage.release()


def step_redis_forward(stage: Stage) -> None:
    """Leases run out at once, and what waits is due by the only clock that decides."""
    stage.set_redis_clock(HOUR_MS)
    stage.wait_taken_over()
    stage.release()


def step_redis_back(stage: Stage) -> None:
    """What waits would wait an hour longer, so the clock is put right again after a while."""
    stage.set_redis_clock(-HOUR_MS)
    stage.release()
    time.sleep(OUTAGE_SECONDS + LEASE_SECONDS)
    stage.set_redis_clock(0)


WORKER_FORWARD = Fault(
    "worker-clock-forward",
    "worker's clock one hour forward",
    partial(step_worker, ms=HOUR_MS),
    "during",
    place="own clock",
)
WORKER_BACK = Fault(
    "worker-clock-back",
    "worker's clock one hour back",
    partial(step_worker, ms=-HOUR_MS),
    "during",
    place="own clock",
)
REDIS_FORWARD = Fault(
    "redis-clock-forward",
    "Redis' clock one hour forward",
    step_redis_forward,
    "before",
    moves_redis_clock=True,
)
REDIS_BACK = Fault(
    "redis-clock-back",
    "Redis' clock one hour back, and right again",
    step_redis_back,
    "before",
    moves_redis_clock=True,
)
