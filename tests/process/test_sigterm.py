"""SIGTERM: claim nothing more, let handlers finish, hand the rest back at once and uncharged. Exit 0, always."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from delayq import Client, NewTask
from delayq.client.document import read
from delayq.connection import Address
from delayq.protocol.commands import Commands
from delayq.worker.worker import Worker

from tests.process.fleet import said, until, wait_said

if TYPE_CHECKING:
    import random

    from delayq import Task

    from tests.process.fleet import Fleet, NewFleet

LIVES = 30
SLOW = {"do": "sleep", "seconds": 600}
DEAF = {"do": "ignore", "seconds": 600}
LONG_SECONDS = 120
"""To drain: longer than any test waits."""


def worker_spec(*, drain_seconds: int, **more: object) -> dict[str, object]:
    worker = {"drainTimeoutSeconds": drain_seconds, "terminationGracePeriodSeconds": drain_seconds + 30}
    return {"worker": worker | more, "delivery": {"maxBlockMilliseconds": 100}}


def test_a_stopping_worker_claims_nothing_finishes_and_hands_the_rest_back_uncharged(
    new_fleet: NewFleet,
) -> None:
    """The rest runs elsewhere at once. A handler that ignores its cancellation does not keep the worker."""
    fleet = new_fleet(worker_spec(drain_seconds=3))
    first = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        for task_id, payload in {
            "slow": SLOW,
            "deaf": DEAF,
            "running": {"do": "sleep", "seconds": 2},
        }.items():
            client.schedule(payload, delay_ms=0, task_id=task_id)
            fleet.wait_entry("start", task_id)
        second, _ = fleet.start_all("worker", "scanner")
        first.send(signal.SIGTERM)
        wait_said(first, "drain_started")
        late = [f"late-{nth}" for nth in range(20)]
        client.schedule_many([NewTask(None, delay_ms=0, task_id=each) for each in late])
        waited_ms = fleet.waited_for_core_ms()
        cancelled = fleet.wait_entry("cancelled", "slow")
        again = fleet.wait_entry("start", "slow", nth=2)
        waited_ms = fleet.waited_for_core_ms() - waited_ms
        assert first.wait() == 0
        view = client.get("slow")
        until(lambda: fleet.stats(redis)["acked"] == 1 + len(late), "all but the two are done")
    starts = fleet.starts()
    assert {run.pid for each in late for run in starts[each]} == {second.pid}
    assert len(starts["running"]) == 1
    assert again.at_ms - cancelled.at_ms < 1000 + waited_ms
    assert (again.pid, again.attempt) == (second.pid, 1)
    assert again.token > cancelled.token
    assert view is not None
    assert (view.failed.failures, view.failed.crashes, view.token) == (0, 0, again.token)
    assert said(first, "cancellation_ignored") != []


def test_what_a_claim_brings_after_the_signal_is_handed_back(new_fleet: NewFleet) -> None:
    """Redis is frozen while the claim is under way, so it claims long after the worker got the signal."""
    fleet = new_fleet(worker_spec(drain_seconds=LONG_SECONDS))
    worker = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        ids = [f"late-{nth}" for nth in range(20)]
        scheduled = client.schedule_many([NewTask(SLOW, delay_ms=2000, task_id=each) for each in ids])
        fleet.server.pause()
        until(lambda: time.time() * 1000 > scheduled[0].due_ms + 300, "the worker looked for them")
        worker.send(signal.SIGTERM)
        wait_said(worker, "drain_started")
        fleet.server.resume()
        assert worker.wait() == 0
        assert sorted(fleet.snapshot(redis).delayed) == sorted(ids)
        assert fleet.stats(redis)["released"] == fleet.stats(redis)["claimed"] > 0
    assert fleet.starts() == {}


def test_a_second_signal_hurries(new_fleet: NewFleet) -> None:
    fleet = new_fleet(worker_spec(drain_seconds=LONG_SECONDS))
    worker = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many([NewTask(SLOW, delay_ms=0, task_id=f"slow-{nth}") for nth in range(10)])
        until(lambda: len(fleet.starts()) == 10, "all run")
        worker.send(signal.SIGTERM)
        wait_said(worker, "drain_started")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        found = fleet.snapshot(redis)
    assert len(found.delayed) == 10
    assert found.attempts == set()


def test_a_worker_stops_while_redis_is_frozen_and_says_what_it_could_not_settle(new_fleet: NewFleet) -> None:
    """Five seconds for each of: passing a hint on, the round trip under way, the last settlement."""
    fleet = new_fleet(worker_spec(drain_seconds=5))
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule({"do": "sleep", "seconds": 2}, delay_ms=0, task_id="running")
        fleet.wait_entry("start", "running")
        fleet.server.pause()
        waited_ms, began = fleet.waited_for_core_ms(), time.monotonic()
        worker.send(signal.SIGTERM)
        fleet.wait_entry("end", "running")
        waited_ms = fleet.waited_for_core_ms() - waited_ms
        assert worker.wait() == 0
    assert time.monotonic() - began < 5 + 3 * 5 + 5 + waited_ms / 1000
    assert said(worker, "settle_failed") != []
    assert said(worker, "wake_not_forwarded") != []


async def run_and_stop(fleet: Fleet, *, seconds: float, hurry_seconds: float | None) -> None:
    """One worker's life, in this process: `stop` after some time, `hurry` a little later."""
    queue = read(fleet.config)
    stop, hurry = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        await asyncio.sleep(task.payload)

    worker = Worker(queue.spec, Commands(queue.queue), Address.from_url(fleet.server.url), handle)
    life = asyncio.create_task(worker.run(stop, hurry))
    await asyncio.sleep(seconds)
    stop.set()
    if hurry_seconds is not None:
        await asyncio.sleep(hurry_seconds)
        hurry.set()
    await life


async def test_workers_stopped_at_any_point_leave_no_lease_and_lose_nothing(
    new_fleet: NewFleet, chance: random.Random
) -> None:
    """30 workers' lives, some of them cut short in the middle of their first claim, most of them hurried."""
    fleet = new_fleet(worker_spec(drain_seconds=1, concurrency=100), appendonly=False)
    async with Client(fleet.server.url, queue=fleet.queue) as client:
        for life in range(LIVES):
            seconds = [chance.choice((0, 0, 0, 0.001, 0.05, 0.3)) for _ in range(120)]
            await client.schedule_many([NewTask(each, delay_ms=chance.randrange(20)) for each in seconds])
            hurry_seconds = chance.choice((None, 0, 0, chance.uniform(0, 0.01), chance.uniform(0, 0.01)))
            await run_and_stop(fleet, seconds=chance.uniform(0, 0.04), hurry_seconds=hurry_seconds)
            counts = await client.counts()
            assert counts.in_flight == 0, f"life {life} left leases behind"
            assert counts.retrying == 0, f"life {life} charged an attempt"
        left = (await client.counts()).waiting
        stats = (await client.counts()).stats
    assert stats["scheduled"] == LIVES * 120 == stats.get("acked", 0) + left
    assert stats.keys() & {"reclaimed", "retried", "buried"} == set()
