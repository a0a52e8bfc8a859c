"""Redis is killed, frozen, cut off, filled up and made to forget under load: nothing is lost, no process restarts."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.errors import TasksRefused, Unavailable

from tests.process.fleet import check_runs, said, status, until
from tests.process.storm import Producer, producing
from tests.topologies.secured import cut

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from delayq import SyncClient

    from tests.process.fleet import Fleet, NewFleet, Role

SPEC: dict[str, Any] = {
    "worker": {"concurrency": 20},
    "delivery": {"leaseDurationSeconds": 2, "maxCrashes": 1000, "backoff": {"delaysSeconds": [0, 1]}},
}
ALWAYS = {"appendfsync": "always"}  # with everysec, what is confirmed may not even be written yet
CREW: tuple[Role, ...] = ("worker", "worker", "scanner", "reaper")


@contextmanager
def loaded(fleet: Fleet) -> Iterator[Producer]:
    """A crew works, and a producer schedules until the block ends."""
    fleet.start_all(*CREW)
    with fleet.client() as client:
        producer = Producer("p", client)
        with producing(producer):
            fleet.wait_more(100)
            yield producer


def ready(fleet: Fleet) -> list[bool]:
    return [status(process, "readyz") == 200 for process in fleet.processes]


def account(fleet: Fleet, confirmed: set[str]) -> set[str]:
    """Confirmed tasks that are gone without ever having run; everything else is done and nothing is left over."""
    with fleet.server.client() as redis:
        fleet.wait_drained(redis)
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).tasks == set()
    assert [process.pid for process in fleet.processes if not process.alive] == []
    check_runs(fleet.starts())
    return confirmed - fleet.ended()


def test_what_ended_while_redis_was_away_is_settled_before_its_lease_is_taken_back(
    new_fleet: NewFleet,
) -> None:
    """Otherwise the first client that got through would decide, and tasks that were done would run again."""
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": 1, "maxCrashes": 100}}, config=ALWAYS)
    fleet.start_all(*CREW)
    ids = {f"task-{number}" for number in range(40)}
    with fleet.client() as client, fleet.server.client() as redis:
        sleep = {"do": "sleep", "seconds": 0.5}
        client.schedule_many(NewTask(sleep, delay_ms=0, task_id=each) for each in ids)
        until(lambda: fleet.starts().keys() == ids, "all run")
        fleet.server.kill()
        until(lambda: fleet.ended() == ids, "all have ended")
        time.sleep(2)  # longer than a lease, which is the point
        fleet.server.launch()
        until(lambda: fleet.stats(redis)["acked"] == len(ids), "all settled")
        assert fleet.stats(redis)["reclaimed"] == 0
    assert {task_id: len(runs) for task_id, runs in fleet.starts().items()} == dict.fromkeys(ids, 1)


def test_writes_torn_off_the_log_are_lost_and_nothing_before_them(new_fleet: NewFleet) -> None:
    """What a power cut does with everysec: the end of the AOF never reached the disk.

    Tasks scheduled in that time are gone. Leases and acks of that time are, too, so those tasks run again, under
    greater tokens though Redis forgot the last ones; what was running then cannot settle.
    """
    fleet = new_fleet(SPEC, config=ALWAYS)  # what is confirmed is in the log that is measured
    with loaded(fleet) as producer:
        before = set(producer.confirmed)
        [log] = (fleet.server.dir / "appendonlydir").glob("*.incr.aof")
        size = log.stat().st_size
        fleet.wait_more(500)
        fleet.server.kill()
        os.truncate(log, size)
        fleet.server.restart()
        fleet.wait_more(500)
    lost = account(fleet, set(producer.confirmed))
    again = sum(len(runs) > 1 for runs in fleet.starts().values())
    print(f"confirmed={len(producer.confirmed)} lost={len(lost)} {again=}")
    assert lost & before == set()
    assert again > 0


def test_forgotten_scripts_late_answers_cut_connections_and_kills_lose_no_task(
    new_fleet: NewFleet, chance: random.Random
) -> None:
    """Of the first, processes and clients notice nothing; nor clients of an answer that is later than a lease."""
    fleet = new_fleet(SPEC, config=ALWAYS)
    with loaded(fleet) as producer, fleet.server.client() as redis:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            redis.script_flush()
        fleet.wait_more(50)
        for process in fleet.processes:
            assert said(process, "redis_unavailable") + said(process, "step_failed") == []
        assert fleet.stats(redis)["reclaimed"] == 0
        redis.execute_command("DEBUG", "SLEEP", "3")  # less than the time-out of a call
        fleet.wait_more(100)
        assert producer.unsure == set()
        for _ in range(15):
            fleet.wait_more(chance.randrange(1, 40))
            cut(fleet.server)
        for _ in range(2):
            fleet.server.kill()
            until(lambda: not any(ready(fleet)), "all have noticed")
            fleet.server.restart()
            until(lambda: all(ready(fleet)), "all are ready again")
            fleet.wait_more(300)
    assert account(fleet, set(producer.confirmed)) == set()


def test_a_frozen_redis_outlasts_calls_and_leases_and_loses_nothing(new_fleet: NewFleet) -> None:
    """Frozen for longer than a call's time-out and twice the lease, while handlers run that outlive the freeze."""
    server = new_fleet().server
    standalone = {"host": "127.0.0.1", "port": server.port}
    connection = {"standalone": standalone, "timeoutSeconds": 1}
    fleet = new_fleet(SPEC | {"redis": connection}, server=server)
    long = [f"long-{nth}" for nth in range(10)]
    with loaded(fleet) as producer:
        sleep = {"do": "sleep", "seconds": 6}
        producer.client.schedule_many(NewTask(sleep, delay_ms=0, task_id=each) for each in long)
        fleet.wait_entry("start", long[-1])
        server.pause()
        time.sleep(4.5)
        server.resume()
        until(lambda: all(ready(fleet)), "all are ready again")
        fleet.wait_more(100)
    assert account(fleet, set(producer.confirmed) | set(long)) == set()


def fill(client: SyncClient, *, delay_ms: int) -> tuple[set[str], Exception]:
    """Schedule until it is refused: what was stored, and the refusal. Large tasks: none may run before."""
    stored: set[str] = set()
    while True:
        task_id = f"full-{len(stored)}"
        try:
            client.schedule(b"x" * 200_000, delay_ms=delay_ms, task_id=task_id)
        except (Unavailable, TasksRefused) as error:
            return stored, error
        stored.add(task_id)


@pytest.mark.every_redis
def test_a_full_redis_refuses_new_tasks_and_drains_the_old_ones(new_fleet: NewFleet) -> None:
    """Bytes as payload: the recorder sees no orders in them, and just notes the run."""
    fleet = new_fleet(SPEC | {"handler": {"python": {"callable": "recorder:handle_any"}}})
    fleet.start_all(*CREW)
    with fleet.client() as client, fleet.server.client() as redis:
        failing = [NewTask({"do": "fail", "times": 1}, delay_ms=4000, task_id=f"f{nth}") for nth in range(50)]
        slow = [NewTask({"do": "sleep", "seconds": 3}, delay_ms=0, task_id=f"s{nth}") for nth in range(10)]
        client.schedule_many([*failing, *slow])
        fleet.wait_entry("start", "s9")
        redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) + 8_000_000)
        stored, error = fill(client, delay_ms=8000)
        assert "OOM" in str(error)
        assert stored
        snapshot = fleet.snapshot(redis)
        snapshot.check()
        assert {id_ for id_ in snapshot.tasks if id_.startswith("full")} <= stored
        expected = stored | {str(task.task_id) for task in (*failing, *slow)}
        assert account(fleet, expected) == set()
        assert client.schedule(None, delay_ms=0, task_id="after").id == "after"
        fleet.wait_entry("end", "after")
    assert [said(process, "lease_lost") for process in fleet.processes] == [[]] * len(CREW)
