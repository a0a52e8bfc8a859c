"""A coroutine that blocks the event loop costs no task a second run, and the worker names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask

from tests.process.fleet import check_runs, said, samples, status, until, wait_said
from tests.process.test_suspects import settled, work_until

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet


def spec(concurrency: int, **delivery: int) -> dict[str, Any]:
    return {"worker": {"concurrency": concurrency}, "delivery": {"leaseDurationSeconds": 2, **delivery}}


def blocking(task_id: str, seconds: float) -> NewTask:
    return NewTask({"do": "block", "seconds": seconds}, task_id=task_id, delay_ms=0)


@pytest.mark.parametrize(
    ("lease", "seconds"), [(10, 0.4), pytest.param(30, 1.5, marks=pytest.mark.full)], ids=["short", "default"]
)
def test_forty_tasks_that_block_the_loop_for_longer_than_their_lease_have_forty_effects(
    new_fleet: NewFleet, lease: int, seconds: float
) -> None:
    """With the default concurrency, 32 begin in one turn of the loop, and all wait for its end."""
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": lease}})
    ids = {f"task-{n:02}" for n in range(40)}
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(blocking(each, seconds) for each in sorted(ids))
        fleet.start("scanner")
        worker = fleet.start("worker", ready=False)
        fleet.wait_drained(redis, timeout_s=120)
        assert fleet.snapshot(redis).tasks == set()
        stats = fleet.stats(redis)
    assert {each: len(runs) for each, runs in fleet.starts().items()} == dict.fromkeys(ids, 1)
    assert (stats["acked"], stats["reclaimed"]) == (len(ids), 0)
    assert not said(worker, "lease_lost")
    [first, *_] = said(worker, "event_loop_blocked")
    assert first["task_id"] in ids
    assert any("recorder:block" in frame for frame in first["stack"])
    assert first["seconds"] >= lease / 6


def test_tasks_that_have_not_begun_run_on_another_worker_and_the_blocked_one_keeps_its_own(
    new_fleet: NewFleet,
) -> None:
    """Half of them wait in the blocked worker for their start, the others in an answer that it has not read."""
    fleet = new_fleet(spec(64))
    fleet.start("scanner")
    waiting = {f"task-{n:02}" for n in range(63)}
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule({"do": "block", "seconds": 12}, task_id="blocks", due_ms=fleet.server.now_ms() - 1000)
        client.schedule_many(NewTask({}, task_id=each, delay_ms=0) for each in sorted(waiting))
        blocked = fleet.start("worker", ready=False)
        wait_said(blocked, "event_loop_blocked")
        assert status(blocked, "healthz") == 200
        assert status(blocked, "readyz") == 503
        [(_, seconds)] = samples(blocked)["delayq_worker_event_loop_blocked_seconds"]
        assert seconds > 0
        other = fleet.start("worker")
        until(lambda: waiting <= fleet.ended(), "the other worker has run them")
        assert "blocks" not in fleet.ended()
        wait_said(blocked, "event_loop_recovered")
        fleet.wait_drained(redis)
        stats = fleet.stats(redis)
    runs = fleet.starts()
    assert {each: len(entries) for each, entries in runs.items()} == dict.fromkeys(waiting | {"blocks"}, 1)
    assert {entry.pid for each in waiting for entry in runs[each]} == {other.pid}
    assert {entry.attempt for entries in runs.values() for entry in entries} == {1}
    assert (stats["acked"], stats["reclaimed"]) == (64, 0)
    assert not said(blocked, "lease_lost")
    check_runs(runs)


@pytest.mark.slow
def test_a_handler_that_never_returns_is_a_dead_letter_in_the_end_and_its_process_restarts(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet(spec(4, handlerTimeoutSeconds=1, maxCrashes=1))
    fleet.start("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many([blocking("endless", 3600), NewTask({}, task_id="good", delay_ms=60_000)])
        died = work_until(fleet, lambda: settled(fleet, redis), "all is done but the endless task")
        dead = client.get("endless")
    assert dead is not None
    assert (dead.failed.reason, dead.failed.failures) == ("crashes", 0)
    assert died >= 1
    assert len(fleet.starts()["endless"]) <= 3
    first = fleet.processes[1]
    assert first.wait() == 1
    assert said(first, "event_loop_blocked")[-1]["ends_process"]
    assert said(first, "exit_forced")
