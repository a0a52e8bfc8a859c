"""Redis' clock jumps an hour forward and back, under load and with leases held: nothing fires early, nothing hangs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from delayq import NewTask

from tests.process.fleet import check_runs, led_by, said, until

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet

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
# A scanner says every second that it leads, and sees then that the clock went back; a worker starts in 2 s, or 4 on a
# busy machine.
RECOVERY_SECONDS = LEASE_SECONDS + 1 + 6


def on_moved_clock(new_fleet: NewFleet) -> Fleet:
    """Handlers ask this Redis for the time, and not the machine."""
    server = new_fleet(movable_clock=True).server
    return new_fleet(SPEC, server=server, environment={"LEDGER_CLOCK": server.url})


def wait_ran(fleet: Fleet, ids: list[str], *, timeout_s: float = 60) -> float:
    def done() -> set[str]:
        return {entry.id for entry in fleet.ledger() if entry.event == "end"}

    return until(lambda: done() >= set(ids), f"{len(ids)} tasks are done", timeout_s=timeout_s)


def schedule(
    fleet: Fleet, name: str, count: int, *, within_ms: int, after_ms: int = 0, seconds: float = 0
) -> list[str]:
    ids = [f"{name}-{nth}" for nth in range(count)]
    with fleet.client() as client:
        client.schedule_many(
            [
                NewTask(
                    {"do": "sleep", "seconds": seconds},
                    delay_ms=after_ms + nth * within_ms // count,
                    task_id=id_,
                )
                for nth, id_ in enumerate(ids)
            ]
        )
    return ids


def wait_recovered(fleet: Fleet, ids: list[str]) -> None:
    """Until the leases of a dead worker are gone. By the clock that went back its tasks are not due: they wait."""
    with fleet.server.client() as redis:
        until(
            lambda: set(fleet.snapshot(redis).retry) == set(ids), "all wait until they are due", timeout_s=60
        )
    assert {len(runs) for runs in fleet.starts().values()} == {1}


def wait_ran_twice(fleet: Fleet) -> None:
    until(lambda: all(len(runs) == 2 for runs in fleet.starts().values()), "all run again", timeout_s=60)


def test_an_hour_forward_and_back_fires_nothing_early_or_twice(new_fleet: NewFleet) -> None:
    fleet = on_moved_clock(new_fleet)
    clock = fleet.server.clock
    assert clock is not None
    fleet.start_all("worker", "worker", "scanner", "scanner")
    with fleet.server.client() as redis:
        soon = schedule(fleet, "soon", 500, within_ms=4000)
        far = schedule(fleet, "far", 500, after_ms=HOUR_MS // 2, within_ms=HOUR_MS // 2)
        held = schedule(fleet, "held", 10, within_ms=0, seconds=3)
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
        assert (
            len(set(fleet.starts()) & set(waiting)) <= len(ran_before) + 40
        )  # what was in flight at the step
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


def test_leases_of_a_dead_worker_are_recovered_though_the_clock_went_back(new_fleet: NewFleet) -> None:
    fleet = on_moved_clock(new_fleet)
    clock = fleet.server.clock
    assert clock is not None
    doomed, _, _ = fleet.start_all("worker", "scanner", "scanner")
    held = schedule(fleet, "held", 20, within_ms=0, seconds=60)
    until(lambda: set(fleet.starts()) == set(held), "all run")
    doomed.kill()
    clock.shift_ms(-HOUR_MS)
    shifted_at = time.monotonic()
    fleet.start("worker")
    wait_recovered(fleet, held)
    took_s = time.monotonic() - shifted_at
    print(f"took_s={took_s:.1f}")
    assert took_s < RECOVERY_SECONDS
    assert any(said(each, "clock_stepped_back") for each in fleet.processes)
    clock.shift_ms(HOUR_MS)
    wait_ran_twice(fleet)


@pytest.mark.full
def test_without_a_scanner_a_reaper_recovers_them(new_fleet: NewFleet) -> None:
    fleet = on_moved_clock(new_fleet)
    clock = fleet.server.clock
    assert clock is not None
    doomed, reaper = fleet.start_all("worker", "reaper")
    held = schedule(fleet, "held", 20, within_ms=0, seconds=60)
    until(lambda: set(fleet.starts()) == set(held), "all run")
    with fleet.server.client() as redis:
        until(lambda: redis.hexists(fleet.keys.cursors, "clock"), "the reaper has looked at the clock")
    doomed.kill()
    clock.shift_ms(-HOUR_MS)
    fleet.start("worker")
    wait_recovered(fleet, held)
    assert said(reaper, "clock_stepped_back")
    clock.shift_ms(HOUR_MS)
    wait_ran_twice(fleet)


def test_leases_that_are_held_stay_held_though_the_clock_went_back(new_fleet: NewFleet) -> None:
    fleet = on_moved_clock(new_fleet)
    clock = fleet.server.clock
    assert clock is not None
    worker, _ = fleet.start_all("worker", "scanner")
    held = schedule(fleet, "held", 20, within_ms=0, seconds=12)
    until(lambda: set(fleet.starts()) == set(held), "all run")
    clock.shift_ms(-HOUR_MS)
    wait_ran(fleet, held)
    with fleet.server.client() as redis:
        fleet.wait_drained(redis)
        assert fleet.stats(redis)["acked"] == 20
    assert {len(runs) for runs in fleet.starts().values()} == {1}
    assert said(worker, "lease_lost") == []


def test_leadership_goes_on_though_the_clock_went_back(new_fleet: NewFleet) -> None:
    """A dead leader's lease would last an hour by the new clock."""
    fleet = on_moved_clock(new_fleet)
    clock = fleet.server.clock
    assert clock is not None
    scanners = fleet.start_all("scanner", "scanner")
    until(lambda: sum(map(bool, map(led_by, scanners))) == 1, "one of them leads")
    [leader] = filter(led_by, scanners)
    [follower] = [each for each in scanners if each is not leader]
    leader.kill()
    clock.shift_ms(-HOUR_MS)
    until(lambda: led_by(follower), "the other leads", timeout_s=13)
