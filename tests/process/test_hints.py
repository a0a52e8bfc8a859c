"""Hints are stolen, scanners die, or there are none, or many: tasks are late by a bounded time, and wake one worker."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from delayq import NewTask
from delayq.protocol import scripts
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, led_by, until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process

MAX_BLOCK_MS = 500
SPEC = {"delivery": {"maxBlockMilliseconds": MAX_BLOCK_MS}}
TASKS, THIEVES = 120, 20
# The promise allows 100 ms for a round trip and the handler's start. On a machine whose two cores are fought over, a
# process may wait longer than that for a core, seldom: 3 tasks of 120 may, and none by half a second.
PROMISED_MS, OUTLIERS, HARD_MS = MAX_BLOCK_MS + 100, 3, MAX_BLOCK_MS + 500


@contextmanager
def thieves(fleet: Fleet) -> Iterator[Counter[str]]:
    """Take nearly every hint: Redis serves who waits longest, and these are many. Begin before the honest do."""
    stolen: Counter[str] = Counter()
    stop = threading.Event()

    def steal() -> None:
        with fleet.server.client() as redis:
            while not stop.is_set():
                found: Any = redis.blpop([fleet.keys.wake, fleet.keys.alarm], timeout=5)
                if found and not stop.is_set():
                    stolen[found[0].rpartition(":")[2]] += 1

    threads = [threading.Thread(target=steal) for _ in range(THIEVES)]
    with fleet.server.client() as redis:
        for thread in threads:
            thread.start()
        until(lambda: redis.info("clients")["blocked_clients"] == THIEVES, "all thieves wait")
        try:
            yield stolen
        finally:
            stop.set()
            while any(thread.is_alive() for thread in threads):
                redis.lpush(fleet.keys.wake, "go home")


def spread(chance: random.Random, seconds: float) -> list[NewTask]:
    return [
        NewTask(None, delay_ms=chance.randrange(int(seconds * 1000)), task_id=f"h{nth}")
        for nth in range(TASKS)
    ]


def all_ran(fleet: Fleet, *, tasks: int = TASKS) -> None:
    until(lambda: len(fleet.starts()) == tasks, "all tasks ran", timeout_s=60)
    check_runs(fleet.starts())


def lateness_ms(fleet: Fleet) -> list[int]:
    return sorted(runs[0].at_ms - runs[0].due_ms for runs in fleet.starts().values())


def check_lateness(fleet: Fleet) -> None:
    late = lateness_ms(fleet)
    print(f"lateness ms: p50={late[len(late) // 2]} p99={late[len(late) * 99 // 100]} max={late[-1]}")
    assert [each for each in late if each > PROMISED_MS][OUTLIERS:] == []
    assert late[-1] <= HARD_MS


def test_stolen_hints_cost_no_more_than_max_block(new_fleet: NewFleet, chance: random.Random) -> None:
    fleet = new_fleet(SPEC)
    with thieves(fleet) as stolen, fleet.client() as client:
        fleet.start_all("scanner", "worker")
        # The later one is due, the sooner it is scheduled: each but the first sets the alarm earlier.
        for task in sorted(spread(chance, 6), key=lambda task: -(task.delay_ms or 0)):
            client.schedule(task.payload, delay_ms=task.delay_ms, task_id=task.task_id)
        all_ran(fleet)
    print(dict(stolen))
    assert stolen["wake"] > TASKS / 3
    assert stolen["alarm"] > 0
    check_lateness(fleet)


def test_without_a_scanner_tasks_are_late_by_max_block_at_most(
    new_fleet: NewFleet, chance: random.Random
) -> None:
    fleet = new_fleet(SPEC)
    fleet.start("worker")
    with fleet.client() as client:
        client.schedule_many(spread(chance, 8))
        all_ran(fleet)
    check_lateness(fleet)


def test_a_killed_scanner_makes_tasks_late_by_max_block_at_most(
    new_fleet: NewFleet, chance: random.Random
) -> None:
    fleet = new_fleet(SPEC)
    scanner, _ = fleet.start_all("scanner", "worker")
    with fleet.client() as client:
        client.schedule_many(spread(chance, 6))
        until(lambda: len(fleet.starts()) > TASKS // 4, "some tasks ran")
        scanner.kill()
        all_ran(fleet)
    check_lateness(fleet)


@contextmanager
def monitor(fleet: Fleet) -> Iterator[list[dict[str, Any]]]:
    """Every command that Redis runs, scripts' own included."""
    heard: list[dict[str, Any]] = []
    with fleet.server.client() as redis, redis.monitor() as monitor:
        done = threading.Event()

        def listen() -> None:
            for command in monitor.listen():
                if command["command"] == "ECHO over":
                    break
                heard.append(command)
            done.set()

        threading.Thread(target=listen, daemon=True).start()
        yield heard
        with fleet.server.client() as other:
            other.echo("over")
        assert done.wait(10)


def test_three_scanners_wake_one_worker_per_due_task(new_fleet: NewFleet) -> None:
    """Three idle workers, three scanners: nothing stampedes when a task falls due."""
    fleet = new_fleet({"delivery": {"maxBlockMilliseconds": 10_000}})
    fleet.start_all("scanner", "scanner", "scanner", "worker", "worker", "worker")
    with monitor(fleet) as heard, fleet.client() as client:
        client.schedule_many(
            [NewTask(None, delay_ms=1000 + nth * 50, task_id=f"h{nth}") for nth in range(TASKS)]
        )
        all_ran(fleet)
    claims = sum(scripts.load("claim").sha in each["command"] for each in heard)
    blocking_reads = sum(each["command"] == f"LPUSH {fleet.keys.wake} 1" for each in heard)
    print(f"tasks={TASKS} claims={claims} wakes={blocking_reads}")
    # A task that was claimed by a look of a worker's own leaves a hint that finds nothing: rare, but so it is.
    assert blocking_reads <= TASKS * 1.1 + 1
    assert claims <= TASKS * 1.2 + 10


def leaders(scanners: list[Process]) -> list[Process]:
    """Those that lead something, as far as they know: for a second after a change, that may be one too many."""
    return [each for each in scanners if led_by(each)]


def one_leads(scanners: list[Process]) -> Process:
    until(lambda: len(leaders(scanners)) == 1, "one of them leads")
    return leaders(scanners)[0]


def test_only_one_scanner_leads(new_fleet: NewFleet) -> None:
    fleet = new_fleet(SPEC)
    scanners = fleet.start_all("scanner", "scanner", "scanner")
    leader = one_leads(scanners)
    with fleet.server.client() as redis:  # and each has said twice since that it is there
        members = {str(name) for name in redis.zrange(fleet.keys.scanners, 0, -1)}
        assert len(members) == 3
        before = {name: redis.zscore(fleet.keys.scanners, name) or 0 for name in members}
        until(
            lambda: all(
                (redis.zscore(fleet.keys.scanners, name) or 0) > before[name] + 1500 for name in members
            ),
            "all came twice",
        )
    assert leaders(scanners) == [leader]


def test_another_scanner_leads_four_seconds_after_a_leader_was_killed(new_fleet: NewFleet) -> None:
    """Meanwhile tasks run, late by no more than maxBlockMilliseconds."""
    fleet = new_fleet(SPEC)
    scanners = [*fleet.start_all("scanner", "scanner", "worker")][:2]
    leader = one_leads(scanners)
    [follower] = [each for each in scanners if each is not leader]
    with fleet.client() as client:
        leader.kill()
        client.schedule_many([NewTask(None, delay_ms=nth * 40, task_id=f"h{nth}") for nth in range(TASKS)])
        took_s = until(lambda: led_by(follower), "the follower leads", timeout_s=8)
        all_ran(fleet)
    print(f"took_s={took_s:.2f}")
    check_lateness(fleet)


def test_a_scanner_told_to_stop_hands_over_within_a_second(new_fleet: NewFleet) -> None:
    fleet = new_fleet(SPEC)
    scanners = fleet.start_all("scanner", "scanner", "scanner")
    leader = one_leads(scanners)
    leader.send(signal.SIGTERM)
    assert leader.wait() == 0
    followers = [each for each in scanners if each is not leader]
    took_s = until(lambda: leaders(followers), "a follower leads", timeout_s=5)
    print(f"took_s={took_s:.2f}")
    assert took_s <= 1.5  # one second, and half a one for this machine's other work


def test_a_scanner_hears_the_alarms_of_a_shard_it_gained_later(new_fleet: NewFleet) -> None:
    """It already listens for another shard's when somebody else's leadership of this one runs out."""
    fleet = new_fleet({"shards": 2, "delivery": {"maxBlockMilliseconds": 30_000}})
    keys = Keys("delayq", fleet.queue, 1)
    with fleet.server.client() as redis:
        until_ms = fleet.server.now_ms() + 3000
        redis.set(keys.leader, f"~somebody {until_ms}")
        redis.zadd(keys.scanners, {"~somebody": until_ms})  # whose name is the last: this shard is its
    scanner, _ = fleet.start_all("scanner", "worker")
    until(lambda: led_by(scanner) == {0, 1}, "both shards are led")
    with fleet.client() as client:
        for nth, task_id in enumerate([id_ for id_ in map(str, range(50)) if shard_of(id_, 2) == 1]):
            client.schedule(None, delay_ms=100, task_id=task_id)
            all_ran(fleet, tasks=nth + 1)
    late = lateness_ms(fleet)
    print(late)
    # An unheard alarm is found at the next tick: up to 5 s late.
    assert [each for each in late if each > 250][OUTLIERS:] == []
    assert late[-1] < 1500
