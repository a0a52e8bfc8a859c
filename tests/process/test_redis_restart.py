"""Redis is killed, frozen, cut off, filled up and made to forget under load: nothing is lost, nobody restarts."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from delayq import NewTask
from delayq.errors import DelayQError, TasksRefused, Unavailable

from tests.process.fleet import check_runs, said, status, until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from delayq import SyncClient

    from tests.process.fleet import Fleet, NewFleet, Role

SPEC = {
    "worker": {"concurrency": 20},
    "delivery": {
        "leaseDurationSeconds": 2,
        "maxCrashes": 1000,
        "backoff": {"delaysSeconds": [0, 1]},
    },
}
ALWAYS = {"appendfsync": "always"}  # with everysec, what is confirmed may not even be written yet
CREW: tuple[Role, ...] = ("worker", "worker", "scanner", "reaper")


@dataclass
class Producer:
    """Schedules without pause, and remembers when which task was confirmed."""

    client: SyncClient
    confirmed: dict[str, float] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # an error came back: it may be stored or not
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        nth = 0
        while not self.stop.is_set():
            ids = [f"p{nth + each}" for each in range(20)]
            nth += len(ids)
            try:
                self.client.schedule_many(
                    [NewTask(None, delay_ms=int(id_[1:]) % 1000, task_id=id_) for id_ in ids]
                )
            except DelayQError:
                self.unsure.update(ids)
            else:
                now = time.monotonic()
                self.confirmed.update(dict.fromkeys(ids, now))
            self.stop.wait(0.01)


@contextmanager
def producing(fleet: Fleet) -> Iterator[Producer]:
    with fleet.client() as client:
        producer = Producer(client)
        thread = threading.Thread(target=producer.run)
        thread.start()
        try:
            yield producer
        finally:
            producer.stop.set()
            thread.join()


def start_crew(fleet: Fleet) -> None:
    fleet.start_all(*CREW)


def all_ready(fleet: Fleet) -> bool:
    return all(status(process, "readyz") == 200 for process in fleet.processes)


def any_ready(fleet: Fleet) -> bool:
    return any(status(process, "readyz") == 200 for process in fleet.processes)


def grown(fleet: Fleet, by: int) -> None:
    """Wait until handlers have run `by` more times."""
    before = len(fleet.ledger())
    until(lambda: len(fleet.ledger()) >= before + by, f"{by} more runs", timeout_s=60)


def account(fleet: Fleet, confirmed: set[str], *, timeout_s: float = 60) -> set[str]:
    """Confirmed tasks that are gone without ever having run; everything else is done and nothing is left over."""
    with fleet.server.client() as redis:
        fleet.wait_drained(redis, timeout_s=timeout_s)
        fleet.snapshot(redis).check()
        assert fleet.snapshot(redis).tasks == set()
    assert [process.pid for process in fleet.processes if not process.alive] == []
    check_runs(fleet.starts())
    return confirmed - {entry.id for entry in fleet.ledger() if entry.event == "end"}


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_killed_redis_comes_back_with_all_it_confirmed(new_fleet: NewFleet, appendfsync: str) -> None:
    """With everysec, what was confirmed within 2 s before the kill may be gone: one second, and a slow disk."""
    fleet = new_fleet(SPEC, config={"appendfsync": appendfsync})
    start_crew(fleet)
    kills, back = [], []
    with producing(fleet) as producer:
        for _ in range(3):
            grown(fleet, 300)
            kills.append(time.monotonic())
            fleet.server.kill()
            until(lambda: not any_ready(fleet), "all have noticed")
            fleet.server.restart()
            back.append(until(lambda: all_ready(fleet), "all are ready again"))
        grown(fleet, 300)
    lost = account(fleet, set(producer.confirmed))
    print(f"{appendfsync}: confirmed={len(producer.confirmed)} lost={len(lost)} ready_again_s={back}")
    if appendfsync == "always":
        assert lost == set()
    late = {id_ for id_ in lost if not any(0 <= kill - producer.confirmed[id_] <= 2 for kill in kills)}
    assert late == set()
    assert max(back) < 10


def test_what_ended_while_redis_was_away_is_settled_before_its_lease_is_taken_back(
    new_fleet: NewFleet,
) -> None:
    """Whoever got through first decided otherwise, and tasks that were done ran again."""
    fleet = new_fleet({"delivery": {"leaseDurationSeconds": 1, "maxCrashes": 100}}, config=ALWAYS)
    fleet.start_all("worker", "worker", "scanner", "reaper")
    ids = {f"task-{number}" for number in range(40)}
    with fleet.client() as client, fleet.server.client() as redis:
        for task_id in ids:
            client.schedule({"do": "sleep", "seconds": 0.5}, delay_ms=0, task_id=task_id)
        for task_id in ids:
            fleet.wait_entry("start", task_id)
        fleet.server.kill()
        for task_id in ids:
            fleet.wait_entry("end", task_id)
        time.sleep(2)  # longer than a lease, which is the point
        fleet.server.launch()
        until(lambda: fleet.stats(redis)["acked"] == len(ids), "all settled", timeout_s=60)
        assert fleet.stats(redis)["reclaimed"] == 0
    assert {task_id: len(runs) for task_id, runs in fleet.starts().items()} == dict.fromkeys(ids, 1)


def test_writes_torn_off_the_log_are_lost_and_nothing_before_them(new_fleet: NewFleet) -> None:
    """What a power cut does with everysec: the end of the AOF never reached the disk.

    Tasks scheduled in that time are gone. Leases and acks of that time are, too, so those tasks run again, under
    greater tokens though Redis forgot the last ones; what was running then cannot settle.
    """
    fleet = new_fleet(SPEC, config=ALWAYS)  # what is confirmed is in the log that is measured
    start_crew(fleet)
    with producing(fleet) as producer:
        grown(fleet, 500)
        before = set(producer.confirmed)
        logs = {file: file.stat().st_size for file in (fleet.server.dir / "appendonlydir").glob("*.incr.aof")}
        grown(fleet, 500)
        fleet.server.kill()
        for file, size in logs.items():
            os.truncate(file, size)
        fleet.server.restart()
        grown(fleet, 500)
    lost = account(fleet, set(producer.confirmed))
    again = sum(len(runs) > 1 for runs in fleet.starts().values())
    print(f"confirmed={len(producer.confirmed)} lost={len(lost)} again={again}")
    assert len(logs) == 1
    assert lost & before == set()
    assert again > 0


def test_forgotten_scripts_are_sent_again_and_nobody_notices(new_fleet: NewFleet) -> None:
    fleet = new_fleet(SPEC)
    start_crew(fleet)
    with producing(fleet) as producer, fleet.server.client() as redis:
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            redis.script_flush()
    assert account(fleet, set(producer.confirmed)) == set()
    assert producer.unsure == set()
    assert {id_: runs for id_, runs in fleet.starts().items() if len(runs) > 1} == {}
    for process in fleet.processes:
        assert said(process, "redis_unavailable") + said(process, "step_failed") == []


def test_cut_connections_lose_no_task(new_fleet: NewFleet, chance: random.Random) -> None:
    fleet = new_fleet(SPEC)
    start_crew(fleet)
    with producing(fleet) as producer, fleet.server.client() as redis:
        for _ in range(15):
            grown(fleet, chance.randrange(1, 60))
            redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert account(fleet, set(producer.confirmed)) == set()
    with fleet.server.client() as redis:
        stats = fleet.stats(redis)
    until(lambda: all_ready(fleet), "all are ready again")
    print(f"confirmed={len(producer.confirmed)} claims whose answer was cut off={stats['reclaimed']}")


def test_a_redis_that_answers_late_delays_everything_and_loses_nothing(new_fleet: NewFleet) -> None:
    """Three seconds: longer than the leases, shorter than the time-out of a call."""
    fleet = new_fleet(SPEC)
    start_crew(fleet)
    with producing(fleet) as producer, fleet.server.client() as redis:
        grown(fleet, 100)
        redis.execute_command("DEBUG", "SLEEP", "3")
        grown(fleet, 100)
    assert account(fleet, set(producer.confirmed)) == set()
    assert producer.unsure == set()


def test_a_frozen_redis_outlasts_calls_and_leases_and_loses_nothing(new_fleet: NewFleet) -> None:
    """Frozen for longer than a call's time-out and twice the lease, while handlers run that outlive the freeze."""
    server = new_fleet().server
    connection = {
        "standalone": {"host": "127.0.0.1", "port": server.port},
        "connection": {"timeoutSeconds": 1},
    }
    fleet = new_fleet(SPEC | {"redis": connection}, server=server)
    start_crew(fleet)
    with producing(fleet) as producer:
        grown(fleet, 100)
        long = [f"long-{nth}" for nth in range(10)]
        producer.client.schedule_many(
            [NewTask({"do": "sleep", "seconds": 6}, delay_ms=0, task_id=id_) for id_ in long]
        )
        fleet.wait_entry("start", long[-1])
        server.pause()
        time.sleep(4.5)
        server.resume()
        back_s = until(lambda: all_ready(fleet), "all are ready again")
        grown(fleet, 100)
    assert account(fleet, set(producer.confirmed) | set(long)) == set()
    print(f"ready_again_s={back_s:.2f}")
    assert back_s < 10


def fill(client: SyncClient, *, delay_ms: int) -> tuple[set[str], Exception]:
    """Schedule until it is refused: what was stored, and the refusal."""
    stored: set[str] = set()
    while True:
        task_id = f"full-{len(stored)}"
        try:
            client.schedule(b"x" * 20_000, delay_ms=delay_ms, task_id=task_id)
        except (Unavailable, TasksRefused) as error:
            return stored, error
        stored.add(task_id)


@pytest.mark.every_redis
def test_a_full_redis_refuses_new_tasks_and_drains_the_old_ones(new_fleet: NewFleet) -> None:
    """Bytes as payload: the recorder sees no orders in them, and just notes the run."""
    fleet = new_fleet(SPEC | {"handler": {"python": {"callable": "recorder:handle_any"}}})
    start_crew(fleet)
    with fleet.client() as client, fleet.server.client() as redis:
        failing = [NewTask({"do": "fail", "times": 1}, delay_ms=4000, task_id=f"f{nth}") for nth in range(50)]
        slow = [NewTask({"do": "sleep", "seconds": 3}, delay_ms=0, task_id=f"s{nth}") for nth in range(10)]
        client.schedule_many([*failing, *slow])
        fleet.wait_entry("start", "s9")
        redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) + 8_000_000)
        stored, error = fill(client, delay_ms=4000)
        assert "OOM" in str(error)
        assert stored
        snapshot = fleet.snapshot(redis)
        snapshot.check()
        assert {id_ for id_ in snapshot.tasks if id_.startswith("full")} <= stored
        expected = stored | {str(task.task_id) for task in (*failing, *slow)}
        assert account(fleet, expected) == set()
        assert client.schedule(None, delay_ms=0, task_id="after").id == "after"
        fleet.wait_entry("end", "after")
    for process in fleet.processes:
        assert said(process, "lease_lost") == []
