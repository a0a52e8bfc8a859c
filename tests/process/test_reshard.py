"""A queue's number of shards changes under load, and whoever moves tasks is killed: each runs once, and none late."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import NewTask, SyncClient
from delayq.protocol.keys import Keys
from delayq.protocol.shard_map import ShardMap

from tests.process.fleet import check_runs, until

if TYPE_CHECKING:
    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet

SOON = 15  # seconds within which half of the tasks fall due
LATER = 97  # and the other half so late that they move before: what is due within a minute stays
LATE_MS = 10_000  # on a machine that others keep busy; nothing that moves may add to it
SPEC = {"worker": {"concurrency": 50}, "delivery": {"leaseDurationSeconds": 30}}


def shard_map(fleet: Fleet, redis: Redis) -> ShardMap | None:
    known: Any = redis.get(Keys("delayq", fleet.queue, 0).shard_map)
    return ShardMap.parse(known.decode() if isinstance(known, bytes) else known) if known else None


def want(fleet: Fleet, shards: int) -> None:
    """Write another number into the document, as its owner does."""
    document = yaml.safe_load(fleet.config.read_text())
    document["spec"]["shards"] = shards
    fleet.config.write_text(yaml.safe_dump(document))


def wait_settled(fleet: Fleet, redis: Redis, shards: int, *, timeout_s: float = 180) -> None:
    def there() -> bool:
        found = shard_map(fleet, redis)
        return found is not None and found.settled and found.shards == shards

    until(there, f"settled with {shards} shards", timeout_s=timeout_s)


def held(fleet: Fleet, redis: Redis) -> int:
    return sum(int(redis.hlen(Keys("delayq", fleet.queue, shard).tasks)) for shard in range(16))


def under_way(fleet: Fleet, redis: Redis) -> bool:
    return any(redis.zcard(Keys("delayq", fleet.queue, shard).moving) for shard in range(16))


def misplaced(fleet: Fleet, redis: Redis, now: ShardMap) -> set[str]:
    found = set()
    for shard in range(16):
        names: Any = redis.hkeys(Keys("delayq", fleet.queue, shard).tasks)
        found |= {str(name) for name in names if now.home(str(name)) != shard}
    return found


def arrived(fleet: Fleet, redis: Redis) -> bool:
    """Whether nothing that could move is where it was: what is left runs there."""
    now = shard_map(fleet, redis)
    if now is None or now.settled or not now.moves:
        return now is not None and now.settled
    soon_ms = time.time_ns() // 1_000_000 + 60_000
    for shard in range(now.covers):
        names: Any = redis.zrangebyscore(Keys("delayq", fleet.queue, shard).delayed, soon_ms, "+inf")
        if any(now.home(str(name)) != shard for name in names):
            return False
    return True


def left(fleet: Fleet, redis: Redis, now: ShardMap) -> set[str]:
    """What dropped shards have still, by the names of their keys."""
    dropped = [f"*{{{fleet.queue}:{shard}}}:*" for shard in range(now.shards, now.widest)]
    return {
        str(key).rpartition(":")[2] for pattern in dropped for key in redis.scan_iter(pattern, count=1000)
    }


class Load(threading.Thread):
    """A client that began with the first shard map and is told of no other, but by the shards that it asks."""

    def __init__(self, client: SyncClient) -> None:
        super().__init__(daemon=True)
        self.client, self.ended, self.ids = client, threading.Event(), list[str]()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with self.client:
                while not self.ended.is_set():
                    self.some()
                    self.ended.wait(0.05)
        except BaseException as error:  # noqa: BLE001  for the test to raise
            self.error = error

    def some(self) -> None:
        first = len(self.ids)
        names = [f"load-{first + n}" for n in range(20)]
        delays = [
            (n * 37 % SOON) * 1000 if n % 2 else (85 + n * 13 % 12) * 1000 for n in range(first, first + 20)
        ]
        new = [NewTask({}, delay_ms=delay, task_id=name) for name, delay in zip(names, delays, strict=True)]
        self.client.schedule_many(new)
        self.ids += names
        assert self.client.get(names[0]) is not None or delays[0] < 5000
        if len(self.ids) % 100 == 0:
            assert self.client.reschedule(names[0], delay_ms=delays[0] + 2000).outcome in {
                "rescheduled",
                "in_flight",
                "not_found",
            }


@pytest.mark.parametrize(("before", "after"), [(2, 8), pytest.param(8, 3, marks=pytest.mark.full)])
def test_each_task_runs_once_and_none_late_though_movers_are_killed(
    new_fleet: NewFleet, before: int, after: int
) -> None:
    fleet = new_fleet({**SPEC, "shards": before})
    scanner, *_ = fleet.start_all("scanner", "worker", "worker")
    with fleet.server.client() as redis, fleet.client() as client:
        ids = [f"first-{n}" for n in range(2000)]
        client.schedule_many(
            NewTask({}, delay_ms=(85 + n % 13) * 1000 if n % 2 else n % SOON * 1000, task_id=name)
            for n, name in enumerate(ids)
        )
        load = Load(fleet.client())
        load.start()
        want(fleet, after)
        scanner.kill()
        movers = fleet.start_all("scanner", "scanner")
        until(lambda: under_way(fleet, redis), "tasks are on their way", timeout_s=60)
        for _ in range(3):
            movers.pop(0).kill()
            movers.append(fleet.start("scanner", ready=False))
            # On a slow machine all may have arrived before the next one has started.
            until(lambda: under_way(fleet, redis) or arrived(fleet, redis), "it goes on", timeout_s=60)
        until(lambda: (shard_map(fleet, redis) or ShardMap.guess(1)).shards == after, "moving", timeout_s=60)
        time.sleep(5)  # of load with the new shard map
        load.ended.set()
        load.join()
        if load.error is not None:
            raise load.error
        wait_settled(fleet, redis, after)
        now = shard_map(fleet, redis)
        assert now is not None
        assert not misplaced(fleet, redis, now)
        until(lambda: held(fleet, redis) == 0, "all have run", timeout_s=120)
        until(lambda: left(fleet, redis, now) <= {"shard_map", "stats"}, "dropped shards keep nothing else")
    starts = fleet.starts()
    assert set(starts) == {*ids, *load.ids}
    check_runs(starts)
    assert [name for name, runs in starts.items() if len(runs) > 1] == []
    lateness = sorted(runs[0].at_ms - runs[0].due_ms for runs in starts.values())
    print(f"{len(lateness)} tasks; late by p50 {lateness[len(lateness) // 2]} ms, at most {lateness[-1]} ms")
    assert lateness[-1] < LATE_MS
