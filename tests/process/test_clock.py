"""Redis' clock jumps an hour forward and back, under load and with leases held: nothing fires early, nothing hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq import NewTask

from tests.process.fleet import check_runs, led_by, said, until

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet
    from tests.servers import Clock

HOUR_MS = 3_600_000
LEASE_SECONDS = 2
SPEC = {
    "worker": {"concurrency": 20},
    "delivery": {
        "leaseDurationSeconds": LEASE_SECONDS,
        "maxCrashes": 1000,
        "backoff": {"delaysSeconds": [0]},
    },
}


@pytest.fixture
def fleet(new_fleet: NewFleet) -> Fleet:
    """Handlers ask this Redis for the time, and not the machine."""
    server = new_fleet(movable_clock=True).server
    return new_fleet(SPEC, server=server, environment={"LEDGER_CLOCK": server.url})


@pytest.fixture
def clock(fleet: Fleet) -> Clock:
    assert fleet.server.clock is not None
    return fleet.server.clock


def wait_ran(fleet: Fleet, ids: list[str]) -> None:
    until(lambda: fleet.ended() >= set(ids), f"{len(ids)} tasks are done")


def schedule(
    fleet: Fleet, name: str, count: int, *, within_ms: int = 0, after_ms: int = 0, seconds: float = 0
) -> list[str]:
    ids, sleep = [f"{name}-{nth}" for nth in range(count)], {"do": "sleep", "seconds": seconds}
    with fleet.client() as client:
        client.schedule_many(
            NewTask(sleep, delay_ms=after_ms + nth * within_ms // count, task_id=id_)
            for nth, id_ in enumerate(ids)
        )
    return ids


def test_an_hour_forward_and_back_fires_nothing_early_or_twice(fleet: Fleet, clock: Clock) -> None:
    fleet.start_all("worker", "worker", "scanner", "scanner")
    with fleet.server.client() as redis:
        soon = schedule(fleet, "soon", 500, within_ms=4000)
        far = schedule(fleet, "far", 500, after_ms=HOUR_MS // 2, within_ms=HOUR_MS // 2)
        held = schedule(fleet, "held", 10, seconds=3)
        fleet.wait_entry("start", held[-1])
        clock.shift_ms(HOUR_MS)
        wait_ran(fleet, [*soon, *far, *held])
        fleet.wait_drained(redis)

        waiting = schedule(fleet, "waiting", 200, within_ms=3000)
        clock.shift_ms(-HOUR_MS)
        ran_before = {id_ for id_ in fleet.starts() if id_ in waiting}
        now = schedule(fleet, "now", 300, within_ms=2000)
        wait_ran(fleet, now)
        until(lambda: redis.zcard(fleet.keys.processing) == 0, "nothing runs")
        in_flight_at_the_step = len(ran_before) + 40
        assert len(set(fleet.starts()) & set(waiting)) <= in_flight_at_the_step
        clock.shift_ms(HOUR_MS)
        wait_ran(fleet, waiting)
        fleet.wait_drained(redis)
        fleet.snapshot(redis).check()
        everything = [*soon, *far, *held, *waiting, *now]
        assert fleet.stats(redis)["acked"] == len(everything)
    starts = fleet.starts()
    assert set(starts) == set(everything)
    # The clock went back between the claim and the look at it for at most those that were in flight just then.
    check_runs({id_: runs for id_, runs in starts.items() if id_ not in ran_before})
    # What runs while the clock jumps forward loses its lease, and runs again; nothing else does.
    assert [starts[id_] for id_ in (*far, *now) if len(starts[id_]) > 1] == []


def test_only_leases_and_leadership_of_the_dead_end_when_the_clock_went_back(
    fleet: Fleet, clock: Clock
) -> None:
    """By the new clock they would last an hour. Tasks of the dead are not due by it, and wait."""
    doomed, *scanners = fleet.start_all("worker", "scanner", "scanner")
    lost = schedule(fleet, "lost", 20, seconds=600)
    until(lambda: set(fleet.starts()) == set(lost), "all slots of the first worker are busy")
    steady = fleet.start("worker")
    held = schedule(fleet, "held", 20, seconds=4 * LEASE_SECONDS)
    until(lambda: set(fleet.starts()) == {*lost, *held}, "all run")
    until(lambda: sum(map(bool, map(led_by, scanners))) == 1, "one of them leads")
    [leader] = filter(led_by, scanners)
    [follower] = [each for each in scanners if each is not leader]
    leader.kill()
    doomed.kill()
    clock.shift_ms(-HOUR_MS)
    until(lambda: led_by(follower), "the other leads")
    wait_ran(fleet, held)
    with fleet.server.client() as redis:
        until(lambda: set(fleet.snapshot(redis).retry) == set(lost), "all wait until they are due")
        assert fleet.stats(redis)["acked"] == len(held)
    assert {len(runs) for runs in fleet.starts().values()} == {1}
    assert said(follower, "clock_stepped_back")
    assert said(steady, "lease_lost") == []
    clock.shift_ms(HOUR_MS)
    until(lambda: all(len(fleet.starts()[id_]) == 2 for id_ in lost), "all run again")
