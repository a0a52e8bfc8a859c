"""A task that ends its worker's process is buried alone: its neighbours run, and dying workers bury no healthy task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq import NewTask

from tests.process.batch_recorder import POISON
from tests.process.fleet import check_runs, said, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process


def spec(concurrency: int, **delivery: int) -> dict[str, Any]:
    return {"worker": {"concurrency": concurrency}, "delivery": {"leaseDurationSeconds": 1, **delivery}}


def asleep(ids: Iterable[str], seconds: float) -> list[NewTask]:
    return [NewTask({"do": "sleep", "seconds": seconds}, task_id=each, delay_ms=0) for each in ids]


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


def test_a_task_that_ends_its_process_is_the_only_one_buried(new_fleet: NewFleet) -> None:
    """All eight twice, halves of halves with the poison task, and the poison task alone, as maxCrashes allows."""
    fleet = new_fleet(spec(8, maxCrashes=2))
    fleet.start("scanner")
    good, deaths = [f"good-{n}" for n in range(7)], 6
    with fleet.client() as client, fleet.server.client() as redis:
        poison = NewTask({"do": "exit_"}, task_id="poison", delay_ms=0)
        client.schedule_many([*asleep(good[:4], 0.2), poison, *asleep(good[4:], 0.2)])
        died = work_until(fleet, lambda: settled(fleet, redis), "all is done but the poison task")
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).dlq == ["poison"]
        assert fleet.stats(redis)["acked"] == len(good)
        assert died == deaths
        dead = client.get("poison")
    assert dead is not None
    assert (dead.failed.reason, dead.failed.crashes) == ("crashes", deaths)
    assert fleet.ended() == set(good)
    check_runs(fleet.starts())


def test_only_the_task_that_ends_the_process_halfway_through_a_call_is_buried(new_fleet: NewFleet) -> None:
    """A call of eight tasks; each of the others is done, maybe twice."""
    app = {"handler": {"python": {"app": "batch_recorder:app"}}}
    fleet = new_fleet(spec(8, maxCrashes=1) | app, environment={"LEDGER_POISON": "1"})
    fleet.start("scanner")
    rows = range(8)
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(
            NewTask(row, task_id=str(row), delay_ms=0, kind="store", version=1) for row in rows
        )
        died = work_until(fleet, lambda: settled(fleet, redis), "all is done but the poison task")
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).dlq == [f"store:{POISON}"]
        assert fleet.stats(redis)["acked"] == len(rows) - 1
        dead = client.get(str(POISON), kind="store")
    assert dead is not None
    assert (dead.failed.reason, dead.failed.crashes, dead.failed.failures) == ("crashes", died, 0)
    stored = {int(line) for line in (fleet.ledger_dir / "rows").read_text().split()}
    assert stored | {POISON} == set(rows)


def test_workers_that_are_killed_again_and_again_bury_no_healthy_task(new_fleet: NewFleet) -> None:
    """Twice as often as maxCrashes allows, each time with tasks in flight."""
    fleet = new_fleet(spec(16))
    fleet.start("scanner")
    ids = {f"task-{n}" for n in range(16)}
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(asleep(sorted(ids), 1))
        for kills in range(6):
            began = len(fleet.ledger())
            worker = fleet.start("worker", ready=False)
            until(lambda: len(fleet.ledger()) > began, "a task runs")  # noqa: B023  it is called right here
            worker.kill()
            assert fleet.snapshot(redis).dlq == [], f"after {kills + 1} kills"
        fleet.start("worker")
        fleet.wait_drained(redis)
        assert fleet.snapshot(redis).tasks == set()
        assert fleet.stats(redis)["acked"] == len(ids)
    assert fleet.ended() == ids
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
        client.schedule_many(asleep((f"task-{n}" for n in range(300)), 0.2))
        until(lambda: len(fleet.ledger()) > 8, "both workers are busy")
        client.schedule_many(asleep(["suspect"], 1))
        assert redis.zrem(fleet.keys.delayed, "suspect"), "it waits behind the others"
        redis.zadd(fleet.keys.suspect, {"suspect": 7})
        fleet.wait_drained(redis)
    ledger = fleet.ledger()
    [began, ended] = [entry for entry in ledger if entry.id == "suspect"]
    beside = [entry for entry in ledger if entry.id != "suspect"]
    mine = [entry for entry in beside if entry.pid == began.pid]
    during = {entry.pid for entry in beside if began.at_ms <= entry.at_ms <= ended.at_ms}
    assert during == {entry.pid for entry in beside} - {began.pid}, (
        "the other worker goes on, and this one waits"
    )
    before = [(entry.event, entry.id) for entry in mine if entry.at_ms <= began.at_ms]
    assert {id_ for event, id_ in before if event == "start"} == {
        id_ for event, id_ in before if event == "end"
    }
    assert [entry for entry in mine if entry.at_ms > ended.at_ms], "it claims again"
