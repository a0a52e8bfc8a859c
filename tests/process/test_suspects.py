"""A task that ends its worker's process is buried alone: its neighbours run, and dying workers bury no healthy task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask

from tests.process.fleet import check_runs, said, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

pytestmark = pytest.mark.one_server


def spec(concurrency: int, **delivery: int) -> dict[str, Any]:
    return {"worker": {"concurrency": concurrency}, "delivery": {"leaseDurationSeconds": 1, **delivery}}


def work_until(fleet: Fleet, done: Callable[[], object], what: str) -> int:
    """Start a worker whenever the last one died; answers how many died."""
    workers: list[Process] = [fleet.start("worker", ready=False)]

    def looked() -> bool:
        if not workers[-1].alive:
            workers.append(fleet.start("worker", ready=False))
        return bool(done())

    until(looked, what, timeout_s=120)
    return len(workers) - 1


def settled(fleet: Fleet, redis: Redis) -> bool:
    found = fleet.snapshot(redis)
    return found.tasks == set(found.dlq)


@pytest.mark.parametrize(
    ("do", "tasks", "max_crashes", "deaths"),
    [
        ("exit_", 8, 2, 6),
        ("segfault", 2, 1, 3),
        pytest.param("run_out_of_memory", 2, 1, 3, marks=pytest.mark.full),
    ],
)
def test_a_task_that_ends_its_process_is_the_only_one_buried(
    new_fleet: NewFleet, do: str, *, tasks: int, max_crashes: int, deaths: int
) -> None:
    """All of them twice, halves of halves with the poison task, and the poison task alone, as maxCrashes allows."""
    fleet = new_fleet(spec(tasks, maxCrashes=max_crashes))
    fleet.start("scanner")
    good = [f"good-{n}" for n in range(tasks - 1)]
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(
            NewTask({"do": "sleep", "seconds": 0.2}, task_id=each, delay_ms=0) for each in good[: tasks // 2]
        )
        client.schedule({"do": do}, task_id="poison", delay_ms=0)
        client.schedule_many(
            NewTask({"do": "sleep", "seconds": 0.2}, task_id=each, delay_ms=0) for each in good[tasks // 2 :]
        )
        died = work_until(fleet, lambda: settled(fleet, redis), "all is done but the poison task")
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).dlq == ["poison"]
        assert fleet.stats(redis)["acked"] == tasks - 1
        assert died == deaths
        dead = client.get("poison")
    assert dead is not None
    assert (dead.failed.reason, dead.failed.crashes) == ("crashes", deaths)
    assert {entry.id for entry in fleet.ledger() if entry.event == "end"} == set(good)
    check_runs(fleet.starts())


def test_workers_that_are_killed_again_and_again_bury_no_healthy_task(new_fleet: NewFleet) -> None:
    """Twice as often as maxCrashes allows, each time with tasks in flight."""
    fleet = new_fleet(spec(16))
    fleet.start("scanner")
    ids = {f"task-{n}" for n in range(16)}
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(
            NewTask({"do": "sleep", "seconds": 1}, task_id=each, delay_ms=0) for each in sorted(ids)
        )
        for kills in range(6):
            began = len(fleet.ledger())
            worker = fleet.start("worker")
            until(lambda: len(fleet.ledger()) > began, "a task runs")  # noqa: B023  it is called right here
            worker.kill()
            assert fleet.snapshot(redis).dlq == [], f"after {kills + 1} kills"
        fleet.start("worker")
        fleet.wait_drained(redis)
        assert fleet.snapshot(redis).tasks == set()
        assert fleet.stats(redis)["acked"] == len(ids)
    assert {entry.id for entry in fleet.ledger() if entry.event == "end"} == ids
    check_runs(fleet.starts())


def test_five_hundred_suspects_of_one_worker_are_done_after_a_few_runs(new_fleet: NewFleet) -> None:
    fleet = new_fleet(spec(500))
    fleet.start("scanner")
    ids = {f"task-{n}" for n in range(500)}
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(NewTask({"do": "hang_once"}, task_id=each, delay_ms=0) for each in sorted(ids))
        victim = fleet.start("worker")
        until(lambda: fleet.starts().keys() == ids, "all tasks run")
        heir = fleet.start("worker")
        victim.kill()
        fleet.wait_drained(redis)
        assert fleet.stats(redis)["acked"] == len(ids)
        assert fleet.snapshot(redis).tasks == set()
    groups = said(heir, "suspects_isolated")
    assert sum(group["tasks"] for group in groups) == len(ids)
    assert len(groups) < 20, groups
    assert {len(runs) for runs in fleet.starts().values()} == {2}


def test_a_busy_worker_makes_room_for_a_suspect_and_another_one_goes_on(new_fleet: NewFleet) -> None:
    """Neither waits for the other: tasks go on falling due, and the suspect runs with nothing beside it."""
    fleet = new_fleet(spec(4, leaseDurationSeconds=10))
    fleet.start_all("scanner", "worker", "worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(NewTask({"do": "sleep", "seconds": 0.2}, delay_ms=0) for _ in range(300))
        until(lambda: len(fleet.ledger()) > 8, "both workers are busy")
        client.schedule({"do": "sleep", "seconds": 1}, task_id="suspect", delay_ms=0)
        assert redis.zrem(fleet.keys.delayed, "suspect"), "it waits behind the others"
        redis.zadd(fleet.keys.suspect, {"suspect": 7})
        fleet.wait_drained(redis)
    ledger = fleet.ledger()
    [began, ended] = [entry for entry in ledger if entry.id == "suspect"]
    meanwhile = [entry for entry in ledger if began.at_ms <= entry.at_ms <= ended.at_ms]
    assert {entry.pid for entry in meanwhile if entry.id != "suspect"} == {
        entry.pid for entry in ledger if entry.pid != began.pid
    }
    open_runs = {entry.id for entry in ledger if entry.pid == began.pid and entry.at_ms < began.at_ms}
    ended_before = {
        entry.id
        for entry in ledger
        if entry.pid == began.pid and entry.event == "end" and entry.at_ms <= began.at_ms
    }
    assert open_runs == ended_before
    assert [entry for entry in ledger if entry.at_ms > ended.at_ms and entry.pid == began.pid], (
        "it claims again"
    )
