"""A queue's number of shards changes under load, and migrators are killed: each task runs once, and none late."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client, NewTask, SyncClient
from delayq.protocol.keys import Keys
from delayq.protocol.shard_map import ShardMap

from tests.process.fleet import check_runs, until

if TYPE_CHECKING:
    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet

SOON = 15  # seconds within which half of the tasks fall due
LATER_MS = 600_000  # and the other half so late that they move before: what is due within a minute stays
LATE_MS = 10_000  # nothing that moves may add to it
SPEC = {"worker": {"concurrency": 50}, "delivery": {"leaseDurationSeconds": 30}}


def shards_of(fleet: Fleet) -> list[Keys]:
    return [Keys("delayq", fleet.queue, shard) for shard in range(16)]


def shard_map(fleet: Fleet, redis: Redis) -> ShardMap:
    known: Any = redis.get(fleet.keys.shard_map)
    return ShardMap.parse(known) if known else ShardMap.assumed(1)


def under_way(fleet: Fleet, redis: Redis) -> bool:
    return any(redis.zcard(keys.moving) for keys in shards_of(fleet))


def settled(fleet: Fleet, redis: Redis, shards: int) -> bool:
    found = shard_map(fleet, redis)
    return found.settled and found.shards == shards


def arrived(fleet: Fleet, redis: Redis) -> bool:
    """Whether nothing that could move is where it was: what is left runs there."""
    now = shard_map(fleet, redis)
    if now.settled or not now.moves:
        return now.settled
    soon_ms = time.time_ns() // 1_000_000 + 60_000
    for keys in shards_of(fleet)[: now.shards_in_use]:
        names: Any = redis.zrangebyscore(keys.delayed, soon_ms, "+inf")
        if any(now.home(name) != keys.shard for name in names):
            return False
    return True


def check_homes(fleet: Fleet, redis: Redis) -> None:
    """Every task is where the shard map says."""
    now = shard_map(fleet, redis)
    for keys in shards_of(fleet):
        names: Any = redis.hkeys(keys.tasks)
        assert {now.home(name) for name in names} <= {keys.shard}


def left(fleet: Fleet, redis: Redis) -> set[str]:
    """What dropped shards have still, by the names of their keys."""
    now = shard_map(fleet, redis)
    dropped = [f"*{{{fleet.queue}:{shard}}}:*" for shard in range(now.shards, now.widest)]
    return {str(key).rpartition(":")[2] for pattern in dropped for key in redis.scan_iter(pattern)}


class Load(threading.Thread):
    """A client that started with the first shard map, and learns of another only from the replies of shards."""

    def __init__(self, client: SyncClient) -> None:
        super().__init__(daemon=True)
        self.client, self.over, self.ids = client, threading.Event(), list[str]()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self.client:
                while not self.over.wait(0.05):
                    self.some()
        except BaseException as error:  # noqa: BLE001  for the test to raise
            self.error = error

    def some(self) -> None:
        first = len(self.ids)
        tasks = [task(f"load-{n}", n) for n in range(first, first + 20)]
        self.client.schedule_many(tasks)
        self.ids += [str(each.task_id) for each in tasks]
        assert self.client.get(f"load-{first + 1}") is not None
        if first % 100 == 0:
            outcome = self.client.reschedule(f"load-{first}", delay_ms=2000).outcome
            assert outcome in {"rescheduled", "in_flight", "not_found"}

    def end(self) -> None:
        self.over.set()
        self.join()
        if self.error is not None:
            raise self.error


def task(name: str, nth: int) -> NewTask:
    return NewTask({}, delay_ms=LATER_MS if nth % 2 else nth * 37 % SOON * 1000, task_id=name)


async def make_due(fleet: Fleet, ids: list[str]) -> None:
    async with Client(fleet.server.url, queue=fleet.queue) as client:
        found = await asyncio.gather(*(client.reschedule(id_, delay_ms=0) for id_ in ids))
    assert {each.outcome for each in found} == {"rescheduled"}


@pytest.mark.parametrize(("before", "after"), [(2, 8), pytest.param(8, 3, marks=pytest.mark.full)])
def test_each_task_runs_once_and_none_late_though_movers_are_killed(
    new_fleet: NewFleet, before: int, after: int
) -> None:
    fleet = new_fleet({**SPEC, "shards": before})
    scanner, *_ = fleet.start_all("scanner", "worker", "worker")
    with fleet.server.client() as redis, fleet.client() as client:
        waited_ms = fleet.waited_for_core_ms()
        ids = [f"first-{n}" for n in range(2000)]
        client.schedule_many(task(name, n) for n, name in enumerate(ids))
        load = Load(fleet.client())
        load.start()
        fleet.change(shards=after)
        scanner.kill()
        movers = fleet.start_all("scanner", "scanner")
        until(lambda: under_way(fleet, redis), "tasks are on their way")
        for _ in range(3):
            movers.pop(0).kill()
            movers.append(fleet.start("scanner", ready=False))
            # On a slow machine all may have arrived before the next one has started.
            until(lambda: under_way(fleet, redis) or arrived(fleet, redis), "it goes on")
        until(lambda: shard_map(fleet, redis).shards == after, "new tasks go to the new shards")
        time.sleep(3)  # of load with the new shard map
        load.end()
        until(lambda: settled(fleet, redis, after), f"settled with {after} shards", timeout_s=180)
        check_homes(fleet, redis)
        waiting = [*ids[1::2], *load.ids[1::2]]
        asyncio.run(make_due(fleet, waiting))
        until(lambda: not any(redis.hlen(keys.tasks) for keys in shards_of(fleet)), "all have run")
        until(lambda: left(fleet, redis) <= {"shard_map", "stats"}, "dropped shards keep nothing else")
        waited_ms = fleet.waited_for_core_ms() - waited_ms
    starts = fleet.starts()
    assert set(starts) == {*ids, *load.ids}
    check_runs(starts)
    assert [name for name, runs in starts.items() if len(runs) > 1] == []
    late = sorted(runs[0].at_ms - runs[0].due_ms for name, runs in starts.items() if name not in set(waiting))
    print(f"{len(late)} tasks; late by p50 {late[len(late) // 2]} ms, at most {late[-1]} ms; {waited_ms:.0f}")
    assert late[-1] < LATE_MS + max(0, waited_ms)
