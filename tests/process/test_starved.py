"""A worker that lacks threads, processes or descriptors charges no task: it claims less, says why, and ends at last.

The limits are the kernel's own, set on a running worker.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask

from tests.process.fleet import readiness, said, samples, until, wait_said
from tests.process.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

TASKS = 1_500
SPEC: dict[str, Any] = {
    "worker": {"concurrency": 300},
    "delivery": {"maxAttempts": 3, "maxCrashes": 1, "backoff": {"delaysSeconds": [0]}},
}
PLAIN = {"python": {"callable": "recorder:handle_sync"}}
STACK_BYTES = 8 * 2**20
NO_USER = 54_321
NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def used_address_space(worker: Process) -> int:
    pages = Path(f"/proc/{worker.pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def lack_threads(worker: Process, room: int = 0) -> None:
    """Leave address space for so many threads, and half of the stack of another one for all else."""
    limit = used_address_space(worker) + room * STACK_BYTES + STACK_BYTES // 2
    resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def schedule(fleet: Fleet, tasks: int = TASKS, **payload: Any) -> None:  # noqa: ANN401  as JSON
    with fleet.client() as client:
        client.schedule_many(NewTask(payload, delay_ms=0, task_id=f"t-{n}") for n in range(tasks))


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    return new_fleet(SPEC | {"handler": PLAIN})


@pytest.fixture
def redis(fleet: Fleet) -> Iterator[Redis]:
    with fleet.server.client() as client:
        yield client


def check_all_ran_once(fleet: Fleet, redis: Redis, tasks: int = TASKS) -> None:
    """Tasks that went back were not charged."""
    fleet.wait_drained(redis)
    starts = fleet.starts()
    assert len(starts) == tasks
    assert {(len(runs), runs[0].attempt) for runs in starts.values()} == {(1, 1)}
    stats = fleet.stats(redis)
    assert (stats["buried"], stats["retried"], stats["reclaimed"]) == (0, 0, 0)


def unusable(worker: Process) -> float:
    [(_, slots)] = samples(worker)["delayq_worker_unusable_slots"]
    return slots


def test_with_few_threads_a_worker_runs_few_tasks_at_a_time(fleet: Fleet, redis: Redis) -> None:
    worker = fleet.start("worker")
    lack_threads(worker, room=20)
    schedule(fleet, seconds=0.05)
    reported = wait_said(worker, "slots_withheld")
    assert "can't start new thread" in reported["error"]
    assert 0 < reported["usable"] < reported["slots"] == 300
    assert unusable(worker) > 200
    check_all_ran_once(fleet, redis)


def test_a_worker_without_threads_leaves_all_tasks_to_another(fleet: Fleet, redis: Redis) -> None:
    starved = fleet.start("worker")
    lack_threads(starved)
    schedule(fleet)
    wait_said(starved, "slots_withheld")
    healthy = fleet.start("worker")
    check_all_ran_once(fleet, redis)
    assert {run.pid for runs in fleet.starts().values() for run in runs} == {healthy.pid}


def test_all_slots_return_when_the_lack_ends(fleet: Fleet, redis: Redis) -> None:
    worker = fleet.start("worker")
    lack_threads(worker)
    schedule(fleet, seconds=0.5)
    until(lambda: unusable(worker) == 300, "no slot is usable")
    until(lambda: "slot_limit (cannot start a thread" in readiness(worker), "not ready")
    resource.prlimit(worker.pid, resource.RLIMIT_AS, NO_LIMIT)
    wait_said(worker, "slots_restored")
    assert unusable(worker) == 0
    assert readiness(worker) == "ok\n"
    check_all_ran_once(fleet, redis)


def limit_descriptors(worker: Process, room: int) -> None:
    used = len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))
    _, most = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (used + room, most))


COMMAND = {"exec": {"command": ["sh", "-c", 'echo "$DELAYQ_ATTEMPT" > "$LEDGER/$DELAYQ_TASK_ID"']}}
"""It starts no process: the shell would meet the limits itself, and fail."""


def check_commands_ran(fleet: Fleet, redis: Redis, tasks: int) -> None:
    fleet.wait_drained(redis)
    ran = [file.read_text() for file in fleet.ledger_dir.glob("t-*")]
    assert ran == ["1\n"] * tasks
    stats = fleet.stats(redis)
    assert (stats["buried"], stats["retried"], stats["reclaimed"]) == (0, 0, 0)


def test_with_few_descriptors_a_worker_runs_few_commands_at_a_time(new_fleet: NewFleet) -> None:
    fleet = new_fleet(SPEC | {"handler": COMMAND})
    worker = fleet.start("worker")
    limit_descriptors(worker, room=40)
    schedule(fleet, 100)
    assert "Too many open files" in wait_said(worker, "slots_withheld")["error"]
    with fleet.server.client() as redis:
        check_commands_ran(fleet, redis, 100)


def test_with_few_processes_a_worker_runs_few_commands_at_a_time(new_fleet: NewFleet) -> None:
    """The kernel exempts root, so the worker has another user, who may read root's files."""
    fleet = new_fleet(SPEC | {"handler": COMMAND})
    rights = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
    other_user = ("setpriv", "--reuid", str(NO_USER), "--clear-groups", *rights, "--")
    worker = fleet.start("worker", before=("prlimit", "--nproc=20", *other_user))
    schedule(fleet, 100)
    wait_said(worker, "slots_withheld")
    with fleet.server.client() as redis:
        check_commands_ran(fleet, redis, 100)


def test_without_a_descriptor_no_request_is_charged(new_fleet: NewFleet) -> None:
    with receiving(200) as (url, requests):
        fleet = new_fleet(SPEC | {"handler": {"http": {"url": url, "maxConnections": 300}}})
        worker = fleet.start("worker")
        limit_descriptors(worker, room=0)
        schedule(fleet, 300)
        assert "Too many open files" in wait_said(worker, "slots_withheld")["error"]
        limit_descriptors(worker, room=400)
        with fleet.server.client() as redis:
            fleet.wait_drained(redis)
            stats = fleet.stats(redis)
    assert len(requests) == 300
    assert (stats["buried"], stats["retried"]) == (0, 0)


def test_a_worker_that_can_begin_no_handler_ends_with_the_reason(fleet: Fleet, redis: Redis) -> None:
    """Within a minute, and without a thread for its own deadline."""
    worker = fleet.start("worker")
    lack_threads(worker)
    schedule(fleet, 10)
    wait_said(worker, "resources_exhausted")
    assert worker.wait() == 1
    assert "error: no handler could begin for 3" in worker.output
    assert "can't start new thread" in worker.output.splitlines()[-1]
    fleet.start("worker")
    check_all_ran_once(fleet, redis, 10)


def test_a_handler_that_breaks_threads_harms_no_other_task(fleet: Fleet, redis: Redis) -> None:
    """Python starts no thread without sys.excepthook."""
    worker = fleet.start("worker")
    schedule(fleet, 1, do="break_threads")
    fleet.wait_entry("end", "t-0")
    with fleet.client() as client:
        client.schedule_many(NewTask({"seconds": 1}, delay_ms=0, task_id=f"n-{n}") for n in range(10))
        wait_said(worker, "slots_withheld")
        fleet.start("worker")
        fleet.wait_drained(redis)
    assert fleet.stats(redis)["retried"] == 0


def test_a_batch_without_a_thread_is_not_charged(new_fleet: NewFleet) -> None:
    fleet = new_fleet(SPEC | {"handler": {"python": {"app": "batch_recorder:app"}}})
    worker = fleet.start("worker")
    lack_threads(worker)
    with fleet.client() as client:
        client.schedule_many(
            NewTask(row, delay_ms=0, task_id=f"row-{row}", kind="store", version=1) for row in range(300)
        )
    reported = wait_said(worker, "slots_withheld")
    assert (reported["usable"], reported["released"]) == (0, 150)  # of one call
    fleet.start("worker")
    with fleet.server.client() as redis:
        fleet.wait_drained(redis)
        stats = fleet.stats(redis)
    assert (stats["buried"], stats["retried"]) == (0, 0)
    assert sorted(map(int, (fleet.ledger_dir / "rows").read_text().split())) == list(range(300))


def test_a_check_without_a_thread_decides_nothing(new_fleet: NewFleet) -> None:
    """On a failure it would bury the task."""
    check = {"python": {"callable": "recovery_check:state_sync"}, "onFailure": "Bury"}
    spec = {"recovery": {"check": check}, "delivery": {"leaseDurationSeconds": 2}}
    fleet = new_fleet(spec)
    worker = fleet.start("worker")
    schedule(fleet, 1, do="sleep", seconds=3600)
    fleet.wait_entry("start", "t-0")
    worker.kill()
    scanner = fleet.start("scanner")
    lack_threads(scanner)
    assert "can't start new thread" in wait_said(scanner, "check_not_started")["error"]
    assert not said(scanner, "recovered")
    resource.prlimit(scanner.pid, resource.RLIMIT_AS, NO_LIMIT)
    assert wait_said(scanner, "recovered")["verdict"] == "requeue"
