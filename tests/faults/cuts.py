"""A worker's machine is cut off from Redis or from the database, and comes back: packets vanish, nobody is told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.fault import Fault
from tests.faults.stage import OUTAGE_SECONDS

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def cut_redis(stage: Stage) -> None:
    """The effect comes when another worker has had the tasks, and before the worker that was cut off can know."""
    with stage.cable("redis").pulled():
        stage.wait_taken_over()
        stage.release()
        time.sleep(OUTAGE_SECONDS / 2)


def cut_database(stage: Stage) -> None:
    """Handlers are in the middle of their transaction; the worker keeps its leases."""
    with stage.cable("database").pulled():
        stage.release()
        time.sleep(OUTAGE_SECONDS)


REDIS = Fault("cut-redis", "network cut between worker and Redis", cut_redis, "before", place="apart")
DATABASE = Fault(
    "cut-database", "network cut between worker and database", cut_database, "during", place="apart"
)
