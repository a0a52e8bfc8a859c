"""Recurring schedules with real processes: each nominal time is created once, and runs as a model says."""

from __future__ import annotations

import random
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract.document import parse_schedule
from delayq.contract.schedule import milliseconds
from delayq.schedules.record import occurrence_id

from tests.process.fleet import check_runs, until
from tests.process.storm import near
from tests.process.test_reshard import arrived, check_homes, settled, shards_of, under_way

if TYPE_CHECKING:
    from delayq import SyncClient
    from redis import Redis

    from tests.process.fleet import Fleet, NewFleet
    from tests.servers import RedisServer
    from tests.topologies.sentinels import Sentinels

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
EVERY_MINUTE = {
    "everySeconds": 60,
    "misfire": {"policy": "RunAll"},
    "task": {"payload": '{"do": "sleep", "seconds": 0}'},
}


def apply(client: SyncClient, name: str, **spec: Any) -> int:  # noqa: ANN401
    """Write a schedule; returns how many occurrences that removed."""
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    of = parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **spec}})
    return client.apply_schedule(of).removed


def every_minute(name: str, after_ms: int, until_ms: int) -> set[str]:
    """The model: the IDs of all full minutes after one instant, up to another."""
    first = after_ms // MINUTE_MS + 1
    return {occurrence_id(name, at * MINUTE_MS) for at in range(first, until_ms // MINUTE_MS + 1)}


def ran(fleet: Fleet, ids: set[str]) -> bool:
    return fleet.ended() >= ids


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    server = new_fleet(movable_clock=True, config={"appendfsync": "always"}).server
    return new_fleet({"worker": {"concurrency": 20}}, server=server)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, pytest.param(50, marks=pytest.mark.full)])
def test_each_time_is_created_once_while_scanners_and_redis_are_killed_and_the_clock_jumps(
    fleet: Fleet, rounds: int
) -> None:
    """A run whose ack Redis did not get is repeated, as any task's; no time is created twice."""
    clock = fleet.server.clock
    assert clock is not None
    scanners = [fleet.start("scanner"), fleet.start("scanner")]
    fleet.start_all("worker", "worker")
    with fleet.client() as client, fleet.server.client() as redis:
        began_ms = fleet.server.now_ms()
        apply(client, "poll", **EVERY_MINUTE)
        latest_ms, restarted = began_ms, False
        for _ in range(rounds):
            scanners.append(fleet.start("scanner"))
            killed = scanners.pop(random.randrange(len(scanners)))
            clock.shift_ms(random.choice([MINUTE_MS, 5 * MINUTE_MS, 25 * MINUTE_MS, HOUR_MS, -HOUR_MS]))
            killed.kill()
            if random.random() < 0.3:
                fleet.server.kill()
                fleet.server.restart()
                restarted = True
            latest_ms = max(latest_ms, fleet.server.now_ms())
            due = every_minute("poll", began_ms, fleet.server.now_ms())
            until(partial(ran, fleet, due), "all that is due has run")
        clock.shift_ms(latest_ms - fleet.server.now_ms())
        until(partial(ran, fleet, every_minute("poll", began_ms, latest_ms)), "all that is due has run")
        starts = fleet.starts()
        assert restarted or {len(runs) for runs in starts.values()} <= {1}  # none, if the clock only fell
        assert starts.keys() - every_minute("poll", began_ms, fleet.server.now_ms()) == set()

        def each_once() -> (
            bool
        ):  # in this order, what moves between two reads is missed, and never counted twice
            known = len(fleet.starts()) + redis.zcard(fleet.keys.delayed)
            record = client.schedules()[0].record
            modelled = len(every_minute("poll", began_ms, record.cursor_ms))
            return record.missed == 0 and known == modelled == fleet.stats(redis)["scheduled"]

        until(each_once, "each time up to the cursor was created once, and ran or waits")


@pytest.mark.slow
@pytest.mark.parametrize("failovers", [2, pytest.param(6, marks=pytest.mark.full)])
def test_each_second_is_created_once_while_primaries_fail_over(
    new_fleet: NewFleet, sentinels: Sentinels, failovers: int
) -> None:
    """Cursor and occurrences are replicated together: what a new primary lacks is created there, at its time.

    Runs are repeated as those of any task: those that began shortly before a fail-over.
    """
    fleet = new_fleet({"worker": {"concurrency": 20}}, server=cast("RedisServer", sentinels))
    fleet.start_all("scanner", "scanner", "worker", "worker")
    failed = list[float]()
    with fleet.client() as client:
        apply(client, "poll", **EVERY_MINUTE | {"everySeconds": 1})
        for _ in range(failovers):
            sentinels.wait_well()  # Sentinel may promote a server that has just started, and lacks everything
            fleet.wait_more(6)
            old = sentinels.primary()
            with sentinels.promoting() as promotion:
                failed.append(time.time())
                old.kill()
                promotion.wait()
            fleet.wait_more(6)
            old.restart()
        starts = fleet.starts()
        check_runs(starts)
        ran = sorted(milliseconds(each.rpartition("@")[2]) // 1000 for each in starts)
        assert ran == list(range(ran[0], ran[-1] + 1))

        def counted() -> bool:  # unless a look comes between the two calls
            record = client.schedules()[0].record
            created = client.counts().stats["scheduled"]
            return bool(record.missed == 0 and created == record.cursor_ms // 1000 - ran[0] + 1)

        until(counted, "each second up to the cursor was created once")
    again = {id_: runs for id_, runs in starts.items() if len(runs) > 1}
    assert [id_ for id_, runs in again.items() if not near(runs[0].at_ms / 1000, failed)] == []


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        ({"policy": "RunAll"}, range(1, 11)),
        pytest.param({"policy": "RunOnce"}, [10], marks=pytest.mark.full),
        pytest.param({"policy": "RunAll", "maxRuns": 3}, [8, 9, 10], marks=pytest.mark.full),
        ({"policy": "Skip", "maxLatenessSeconds": 150}, [8, 9, 10]),
    ],
    ids=str,
)
def test_after_ten_minutes_in_which_everything_was_down_what_may_begin_begins(
    fleet: Fleet, misfire: dict[str, Any], expected: list[int]
) -> None:
    """Occurrences that exist are judged by the claim."""
    clock = fleet.server.clock
    assert clock is not None
    scanner = fleet.start("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        clock.shift_ms(MINUTE_MS - fleet.server.now_ms() % MINUTE_MS + 100)
        minute = fleet.server.now_ms() // MINUTE_MS
        apply(client, "poll", **EVERY_MINUTE | {"misfire": misfire})
        until(partial(redis.zcard, fleet.keys.delayed), "occurrences are created ahead")
        scanner.kill()
        clock.shift_ms(10 * MINUTE_MS)
        fleet.start("worker")
        due = {occurrence_id("poll", (minute + n) * MINUTE_MS) for n in expected}
        until(partial(ran, fleet, due), "what may begin has run")
        assert set(fleet.starts()) == due
        [record] = client.schedules()
        assert record.missed == 10 - len(due)


def test_occurrences_of_a_run_are_skipped_while_it_lasts(fleet: Fleet) -> None:
    fleet.start_all("scanner", "worker")
    with fleet.client() as client:
        apply(
            client,
            "slow",
            everySeconds=1,
            concurrencyPolicy="Forbid",
            misfire={"policy": "RunAll"},
            task={"payload": '{"do": "sleep", "seconds": 3.5}'},
        )
        until(lambda: len(fleet.ended()) >= 2, "two have run")
        until(lambda: client.schedules()[0].skipped >= 6, "three are skipped for each of them")
        runs = sorted(entry.at_ms for entries in fleet.starts().values() for entry in entries)
        assert min(later - at for at, later in pairwise(runs)) >= 3500


def test_a_change_removes_what_was_created_and_the_new_definition_is_applied_at_once(fleet: Fleet) -> None:
    fleet.start("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        apply(client, "poll", everySeconds=60)
        until(partial(redis.zcard, fleet.keys.delayed), "occurrences are created ahead")
        ahead = redis.zcard(fleet.keys.delayed)
        apply(client, "poll", everySeconds=300)
        until(lambda: 0 < redis.zcard(fleet.keys.delayed) < ahead, "the others are removed")
        done = client.delete_schedule("poll")
        assert done.outcome == "deleted"
        assert (redis.zcard(fleet.keys.delayed), redis.hlen(fleet.keys.tasks)) == (0, 0)


@pytest.mark.full
def test_each_time_is_created_once_while_the_number_of_shards_changes(new_fleet: NewFleet) -> None:
    """A record migrates with the schedule's cursor, after its occurrences; the process that moves it is killed."""
    spec = {"worker": {"concurrency": 50}, "shards": 2}
    fleet = new_fleet(spec, server=new_fleet(movable_clock=True).server)
    clock = fleet.server.clock
    assert clock is not None
    scanner, *_ = fleet.start_all("scanner", "worker", "worker")
    names = [f"poll-{number}" for number in range(20)]
    with fleet.client() as client, fleet.server.client() as redis:
        began_ms = fleet.server.now_ms()
        for name in names:
            apply(client, name, **EVERY_MINUTE)
        until(partial(occurrences, fleet, redis), "occurrences are created ahead")
        for shards in (8, 3):
            fleet.change(shards=shards)
            scanner.kill()
            movers = fleet.start_all("scanner", "scanner")
            until(lambda: under_way(fleet, redis) or arrived(fleet, redis), "records are on their way")
            movers.pop().kill()
            scanner = movers.pop()

            def settled_there(shards: int = shards) -> bool:
                clock.shift_ms(20_000)  # what is due soon stays where it is, and so does its record
                return settled(fleet, redis, shards)

            until(settled_there, f"settled with {shards} shards", timeout_s=120)
        check_homes(fleet, redis)
        clock.shift_ms(HOUR_MS)
        now_ms = fleet.server.now_ms()
        due = set[str]().union(*(every_minute(name, began_ms + 2000, now_ms) for name in names))
        until(partial(ran, fleet, due), "all that is due has run", timeout_s=120)
        runs = fleet.starts()
        assert {len(each) for each in runs.values()} == {1}
        records = {record.name: record for record in client.schedules()}
        assert (set(records), {record.missed for record in records.values()}) == (set(names), {0})

        def each_once() -> bool:  # read in this order, as above
            known = len(fleet.starts()) + occurrences(fleet, redis)
            return known == client.counts().stats["scheduled"]

        until(each_once, "each was created once, and ran or waits")


def occurrences(fleet: Fleet, redis: Redis) -> int:
    """How many wait."""
    return sum(redis.zcard(keys.delayed) for keys in shards_of(fleet))
