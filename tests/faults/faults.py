"""The faults of the table, in its order: each says what it needs, and strikes once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from tests.faults.crew import LEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.points import Point
    from tests.faults.stage import Stage

    Strike = Callable[[Stage], None]

Place = Literal["here", "apart", "own clock"]
HOUR_MS: Final = 3_600_000
OUTAGE_SECONDS: Final = 1.5 * LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Fault:
    """One row."""

    name: str
    meaning: str
    """What the document says of it."""
    strike: Strike
    holds: Point
    """Where the worker that is hit waits with its first tasks until the fault is there."""
    place: Place = "here"
    """Where that worker runs: with the others, behind cables, or with a clock of its own."""
    moves_redis_clock: bool = False


def kill(stage: Stage) -> None:
    stage.victim.kill()


def stop_worker(stage: Stage) -> None:
    """The worker goes on exactly where it was, right before the effect, when another worker has had its tasks."""
    stage.victim.pause()
    stage.wait_taken_over()
    stage.release()
    stage.victim.resume()


def restart_redis(stage: Stage) -> None:
    """Handlers end meanwhile, and cannot say so."""
    servers = stage.some_redis()
    for server in servers:
        server.kill()
    stage.release()
    time.sleep(OUTAGE_SECONDS)
    for server in servers:
        server.launch()


def pause_redis(stage: Stage) -> None:
    """Handlers end meanwhile, and cannot say so."""
    for server in stage.some_redis():
        with server.client() as redis:
            redis.client_pause(int(OUTAGE_SECONDS * 1000))
    stage.release()
    time.sleep(OUTAGE_SECONDS)


def restart_database(stage: Stage) -> None:
    """Handlers are in the middle of their transaction."""
    stage.postgres.kill()
    stage.release()
    stage.postgres.launch()


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


_forward, _back = partial(step_worker, ms=HOUR_MS), partial(step_worker, ms=-HOUR_MS)
FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("kill-before", "worker killed before the effect", kill, "before"),
        Fault("kill-during", "worker killed in the middle of the transaction", kill, "during"),
        Fault("kill-after", "worker killed after the commit, before the ack", kill, "after"),
        Fault("stop", "worker stopped past its lease, then continued", stop_worker, "before"),
        Fault("redis-restart", "Redis killed and started again (AOF, `always`)", restart_redis, "during"),
        Fault("redis-pause", "`CLIENT PAUSE` for longer than a lease", pause_redis, "during"),
        Fault("database-restart", "database killed and started again", restart_database, "during"),
        Fault("cut-redis", "network cut between worker and Redis", cut_redis, "before", "apart"),
        Fault("cut-database", "network cut between worker and database", cut_database, "during", "apart"),
        Fault("worker-clock-forward", "worker's clock one hour forward", _forward, "during", "own clock"),
        Fault("worker-clock-back", "worker's clock one hour back", _back, "during", "own clock"),
        Fault(
            "redis-clock-forward",
            "Redis' clock one hour forward",
            step_redis_forward,
            "before",
            moves_redis_clock=True,
        ),
        Fault(
            "redis-clock-back",
            "Redis' clock one hour back, and right again",
            step_redis_back,
            "before",
            moves_redis_clock=True,
        ),
    )
}
