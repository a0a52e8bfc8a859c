"""Workers keep to the limits of their queue together, waste no time over it, and ask Redis no more than they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.protocol.keys import shard_of

from tests.process.fleet import status, until
from tests.process.test_scrape import samples

if TYPE_CHECKING:
    from delayq import SyncClient
    from redis import Redis

    from tests.process.fleet import Entry, Fleet, NewFleet
    from tests.processes import Process

RATE, BURST, TASKS = 50, 10, 160
IN_TIME_SECONDS = (TASKS - BURST) / RATE
GENEROUS_SECONDS = 4.0  # for a machine that has others to serve


def schedule(client: SyncClient, count: int, **payload: Any) -> None:  # noqa: ANN401  of the recorder's handlers
    client.schedule_many(NewTask(payload, delay_ms=0, task_id=f"t{n}") for n in range(count))


def begun(fleet: Fleet) -> list[Entry]:
    return sorted(
        (entry for entry in fleet.ledger() if entry.event == "start"), key=lambda entry: entry.at_ms
    )


def down(scanner: Process) -> set[str]:
    return {labels["shard"] for labels, _ in samples(scanner).get("delayq_shard_down", ())}


def scripts_run(redis: Redis) -> int:
    stats: dict[str, Any] = redis.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("evalsha", "eval"))


@pytest.mark.parametrize(("shards", "scanner"), [(1, True), (2, True), (1, False)])
def test_workers_begin_no_more_than_the_rate_and_no_fewer(
    new_fleet: NewFleet, *, shards: int, scanner: bool
) -> None:
    """Without a scanner, too: who began the last tasks comes back for the next."""
    limits = {"ratePerSecond": RATE, "burst": BURST}
    fleet = new_fleet({"shards": shards, "limits": limits, "worker": {"concurrency": 20}})
    fleet.start_all("worker", "worker")
    if scanner:
        fleet.start_all("scanner")
    with fleet.client() as client, fleet.server.client() as redis:
        before = scripts_run(redis)
        schedule(client, TASKS)
        until(lambda: len(begun(fleet)) >= TASKS, "all have begun", timeout_s=60)
        asked = scripts_run(redis) - before
    at = [entry.at_ms for entry in begun(fleet)]
    seconds = (at[-1] - at[0]) / 1000
    # A claim is seen by its handler a little later: what counts here is that it does not add up.
    assert seconds > IN_TIME_SECONDS * 0.9
    assert seconds < IN_TIME_SECONDS + GENEROUS_SECONDS
    for first in range(0, TASKS - 60, 20):
        assert (at[first + 59] - at[first]) / 1000 > (60 - BURST) / RATE - 0.5
    # A claim and an ack for each task at the worst, and as many looks of the scanner and of those who came in vain.
    assert asked < TASKS * 4 + 150 * seconds


def test_workers_run_no_more_at_a_time_than_may_be_in_flight_and_go_on_as_soon_as_one_ends(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet({"shards": 2, "limits": {"maxInFlight": 4}, "worker": {"concurrency": 10}})
    fleet.start_all("worker", "worker", "scanner")
    with fleet.client() as client:
        schedule(client, 60, do="sleep", seconds=0.1)
        until(lambda: sum(e.event == "end" for e in fleet.ledger()) >= 60, "all have ended", timeout_s=60)
    entries = sorted(fleet.ledger(), key=lambda entry: (entry.at_ms, entry.event))  # of one ms, ends first
    running = most = 0
    for entry in entries:
        running += {"start": 1, "end": -1}.get(entry.event, 0)
        most = max(most, running)
    assert most == 4
    seconds = (entries[-1].at_ms - entries[0].at_ms) / 1000
    assert 1.4 < seconds < 1.5 + GENEROUS_SECONDS


@pytest.mark.parametrize("key", ["delayed", "leader"])
def test_a_broken_shard_is_named_and_the_others_go_on(new_fleet: NewFleet, key: str) -> None:
    """A key of somebody else's under the name of one of ours. Who starts with it becomes ready all the same."""
    fleet = new_fleet({"shards": 4, "delivery": {"maxBlockMilliseconds": 500}})
    with fleet.client() as client, fleet.server.client() as redis:
        redis.rpush(f"delayq:{{{fleet.queue}:1}}:{key}", "not ours")
        worker, scanner, _ = fleet.start_all("worker", "scanner", "reaper")
        told = worker if key == "delayed" else scanner  # each meets keys of its own
        told.wait_line(r'"event": "shard_refused".*WRONGTYPE')
        served = [n for n in range(200) if shard_of(f"t{n}", 4) != 1]
        client.schedule_many(NewTask(None, delay_ms=0, task_id=f"t{n}") for n in served)
        until(lambda: len(begun(fleet)) >= len(served), "all others have begun", timeout_s=30)
        until(lambda: down(scanner) == {"1"}, "its shard is down, and no other", timeout_s=30)
    assert all(process.alive for process in fleet.processes)
    assert status(scanner, "readyz") == 200
    late = [entry.at_ms - entry.due_ms for entry in begun(fleet)]
    assert sorted(late)[len(late) // 2] < 3000
