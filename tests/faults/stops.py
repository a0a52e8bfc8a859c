"""Somebody stands still for longer than a lease, does not know it, and goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.fault import Fault
from tests.faults.stage import OUTAGE_SECONDS

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def stop_worker(stage: Stage) -> None:
    """The worker goes on exactly where it was, right before the effect, when another worker has had its tasks."""
    stage.victim.pause()
    stage.wait_taken_over()
    stage.release()
    stage.victim.resume()


def pause_redis(stage: Stage) -> None:
    """Handlers end meanwhile, and cannot say so."""
    for server in stage.some_redis():
        with server.client() as redis:
            redis.client_pause(int(OUTAGE_SECONDS * 1000))
    stage.release()
    time.sleep(OUTAGE_SECONDS)


WORKER = Fault("stop", "worker stopped past its lease, then continued", stop_worker, "before")
REDIS = Fault("redis-pause", "`CLIENT PAUSE` for longer than a lease", pause_redis, "during")
