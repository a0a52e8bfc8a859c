"""Workers keep to the limits of their queue together, waste no time over it, and ask Redis no more than they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.keys import shard_of

from tests.process.fleet import samples, shards_down, status, until

if TYPE_CHECKING:
    from redis import Redis

    from tests.process.fleet import NewFleet

RATE, BURST, TASKS = 50, 10, 160
LATE_SECONDS = 4
"""Shards do not hold as many tasks each, and a worker that was woken in vain looks again after a second."""
STRETCH = 60
"""Tasks of which the shortest stretch is measured."""


def scripts_run(redis: Redis) -> int:
    stats: dict[str, Any] = redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


@pytest.mark.parametrize(("shards", "scanner"), [(2, True), (1, False)])
def test_workers_begin_no_more_than_the_rate_and_no_fewer(
    new_fleet: NewFleet, *, shards: int, scanner: bool
) -> None:
    """Without a scanner, too: who began the last tasks comes back for the next. A token is its claim's time in µs."""
    limits = {"ratePerSecond": RATE, "burst": BURST}
    fleet = new_fleet({"shards": shards, "limits": limits, "worker": {"concurrency": 20}})
    fleet.start_all("worker", "worker")
    if scanner:
        fleet.start("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        before, waited_ms = scripts_run(redis), fleet.waited_for_core_ms()
        client.schedule_many(NewTask(None, delay_ms=0, task_id=f"t{n}") for n in range(TASKS))
        until(lambda: len(fleet.starts()) == TASKS, "all have begun")
        asked, waited_ms = scripts_run(redis) - before, fleet.waited_for_core_ms() - waited_ms
    claimed = sorted(runs[0].token / 1e6 for runs in fleet.starts().values())
    shortest = min(claimed[n + STRETCH - 1] - claimed[n] for n in range(TASKS - STRETCH))
    seconds = claimed[-1] - claimed[0]
    print(f"{seconds=:.2f} {shortest=:.2f} {asked=} {waited_ms=:.0f}")
    # Each shard has a burst and a rate of its own: a share of the whole.
    assert shortest > (STRETCH - BURST - shards) / RATE
    in_time = (TASKS - BURST) / RATE
    assert in_time * 0.9 < seconds < in_time + LATE_SECONDS + waited_ms / 1000
    # A claim and an ack for each task at the worst, and as many looks of the scanner and of those who came in vain.
    assert asked < TASKS * 4 + 150 * seconds


def test_workers_run_no_more_at_a_time_than_may_be_in_flight_and_go_on_as_soon_as_one_ends(
    new_fleet: NewFleet,
) -> None:
    tasks, at_a_time, seconds = 60, 4, 0.1
    fleet = new_fleet({"shards": 2, "limits": {"maxInFlight": at_a_time}, "worker": {"concurrency": 10}})
    fleet.start_all("worker", "worker", "scanner")
    with fleet.client() as client:
        waited_ms = fleet.waited_for_core_ms()
        client.schedule_many(NewTask({"do": "sleep", "seconds": seconds}, delay_ms=0) for _ in range(tasks))
        until(lambda: len(fleet.ended()) == tasks, "all have ended")
        waited_s = (fleet.waited_for_core_ms() - waited_ms) / 1000
    entries = sorted(fleet.ledger(), key=lambda entry: (entry.at_ms, entry.event))  # of one ms, ends first
    running = most = 0
    for entry in entries:
        running += {"start": 1, "end": -1}[entry.event]
        most = max(most, running)
    assert most == at_a_time
    # A round trip after each end; who missed a hint looks again after a second.
    assert (entries[-1].at_ms - entries[0].at_ms) / 1000 < tasks / at_a_time * seconds + 2 + waited_s


def test_broken_shards_are_named_and_the_others_go_on(new_fleet: NewFleet) -> None:
    """Foreign keys under our names. A process that starts with them becomes ready all the same."""
    fleet = new_fleet({"shards": 4, "delivery": {"maxBlockMilliseconds": 500}})
    with fleet.client() as client, fleet.server.client() as redis:
        for shard, key in ((1, "delayed"), (2, "leader")):
            redis.rpush(f"delayq:{{{fleet.queue}:{shard}}}:{key}", "not ours")
        worker, scanner = fleet.start_all("worker", "scanner", "reaper")[:2]
        for process, shard in ((worker, 1), (scanner, 2)):  # each meets keys of its own
            process.wait_line(rf'"event": "shard_refused".*"shard": {shard},.*WRONGTYPE')
        served = [f"t{n}" for n in range(200) if shard_of(f"t{n}", 4) != 1]  # who needs no scanner serves 2
        client.schedule_many(NewTask(None, delay_ms=0, task_id=each) for each in served)
        until(lambda: fleet.starts().keys() == set(served), "all others have begun")
        until(lambda: shards_down(scanner).keys() == {1, 2}, "those shards are down, and no others")
        assert samples(scanner)["delayq_redis_up"][0][1] == 1
    assert all(process.alive for process in fleet.processes)
    assert status(scanner, "readyz") == 200
