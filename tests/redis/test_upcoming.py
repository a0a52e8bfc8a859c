"""Occurrences of schedules that are not stored yet, in the counts of a scrape, on a real Redis."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.commands import Commands
from delayq.protocol.due_histogram import asked
from delayq.scanner import upcoming
from delayq.scanner.exporter import Exporter
from delayq.scanner.upcoming import Upcoming
from delayq.service.counters import ProcessCounters

from tests.redis.state import State
from tests.redis.test_schedule_keeper import put
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.results import Counts

    from tests.redis.state import Shard

DAY = 86_400_000
HEAVY: dict[str, Any] = {"everySeconds": None, "cron": "* * * * *", "timeZone": "Europe/Lisbon"}
LARGE: dict[str, Any] = {"payload": '"' + "x" * 60_000 + '"'}  # JSON text; four are a page
NEVER = float("inf")  # the time is not over


class Looks:
    """An Upcoming of shard 0, whose results are not kept: each look reads the schedules."""

    def __init__(self, shard: Shard, connection: AsyncConnection) -> None:
        self._shard, self._connection, self._looks = shard, connection, 0
        self._upcoming = Upcoming(shard.commands, connection, lambda: self._looks)

    async def within(self, horizon_ms: int, stop_at: float) -> int:
        self._looks += 1
        counts: Counts = await self._connection.one(self._shard.commands.counts(0, [horizon_ms]))
        return (await self._upcoming.added(0, counts, stop_at)).due_within[horizon_ms]


def seconds_from_now(seconds: float) -> float:
    return time.monotonic() + seconds


async def test_one_schedule_takes_no_more_than_the_time_there_is_and_the_next_look_goes_on(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "heavy", **HEAVY)
    looks, found = Looks(shard, connection), [0]
    async with asyncio.timeout(60):
        while found[-1] < 5760:
            found.append(await looks.within(4 * DAY, seconds_from_now(0.03)))
    assert found == sorted(found)
    assert len(set(found)) > 3
    assert found[-1] == 5760


async def test_what_a_look_computed_that_was_cancelled_is_kept(
    shard: Shard, connection: AsyncConnection
) -> None:
    for number in range(8):
        put(shard, f"schedule-{number}", everySeconds=3600, task=LARGE)
    looks, one, reads, hangs = Looks(shard, connection), connection.one, 0, asyncio.Event()

    async def hanging(call: Any) -> Any:  # noqa: ANN401 -- as one() has it
        nonlocal reads
        reads += 1
        if reads == 3:  # the counts, a page of four, and the next one
            hangs.set()
            await asyncio.Event().wait()
        return await one(call)

    connection.one = hanging  # type: ignore[method-assign]
    looking = asyncio.create_task(looks.within(DAY, NEVER))
    await hangs.wait()
    looking.cancel()
    await asyncio.wait([looking])
    assert await looks.within(DAY, stop_at=0) == 4 * 24


class Clock:
    """Time that passes with each page."""

    def __init__(self, connection: AsyncConnection, pages: str) -> None:
        self.now, self._one, self._pages = 0, connection.one, pages

    def monotonic(self) -> float:
        return self.now

    async def one(self, call: Any) -> Any:  # noqa: ANN401 -- as one() has it
        self.now += call.script.name == self._pages
        return await self._one(call)


async def test_pages_are_read_only_while_there_is_time_and_the_next_look_goes_on(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        put(shard, f"schedule-{number}", everySeconds=3600, task=LARGE)
    looks, clock, found = Looks(shard, connection), Clock(connection, "list_schedules"), [0]
    monkeypatch.setattr(connection, "one", clock.one)
    monkeypatch.setattr(upcoming, "time", clock)
    while found[-1] < 40 * 24:
        began = clock.now
        found.append(await looks.within(DAY, began + 3))
        assert clock.now <= began + 3
    assert found == sorted(set(found))
    assert len(found) > 3
    shard.seed(State())
    assert [await looks.within(DAY, clock.now + 3) for _ in range(3)][-1] == 0


async def test_the_shard_that_was_read_last_waits_for_the_others(
    shard: Shard, connection: AsyncConnection
) -> None:
    """One whose schedules take the whole time at each scrape must not keep the others from being read."""
    read = Upcoming(shard.commands, connection, lambda: 0)
    counts: Counts = await connection.one(shard.commands.counts(0, [DAY]))
    await read.added(0, counts, NEVER)
    await read.added(1, counts, stop_at=0)  # there was no time left for it
    assert read.longest_ago([0, 1, 2]) == [1, 2, 0]


async def test_times_that_are_too_short_count_while_there_is_no_time_to_compute_more(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "hourly", everySeconds=3600)
    looks = Looks(shard, connection)
    assert await looks.within(DAY, NEVER) == 24
    assert await looks.within(2 * DAY, stop_at=0) == 24
    assert await looks.within(2 * DAY, NEVER) == 48


@pytest.mark.parametrize("spec", [HEAVY, {"everySeconds": None, "times": ["2031-01-01T00:00:00Z"]}])
async def test_others_run_after_each_slice_also_between_schedules_without_occurrences(
    shard: Shard, connection: AsyncConnection, spec: dict[str, Any]
) -> None:
    """In CPU time of this thread, so that other processes do not count; nor does garbage of other tests."""
    for number in range(100):
        put(shard, f"schedule-{number}", **spec)
    gc.disable()
    try:
        looks = Looks(shard, connection)
        await looks.within(10 * DAY, stop_at=0)  # it connects, which takes long and is no computing
        looking = asyncio.create_task(looks.within(10 * DAY, seconds_from_now(0.5)))
        turns = [time.thread_time()]
        while not looking.done():
            await asyncio.sleep(0)
            turns.append(time.thread_time())
        await looking
    finally:
        gc.enable()
    gaps = [later - turn for turn, later in pairwise(turns)]
    assert max(gaps) < 0.01


def exporter(commands: Commands, connection: AsyncConnection) -> Exporter:
    shards = [keys.shard for keys in commands.shards]
    scanner: Any = SimpleNamespace(
        shards=[SimpleNamespace(shard=each, leads=True) for each in shards],
        others=frozenset(),
        down={},
        connects=1,
        scans={},
        scheduled=set(shards),
        tended=0,
        unconfirmed=False,
        counters=ProcessCounters("scanner", "orders"),
    )
    return Exporter(scanner, commands, connection, document({"http": {"url": "http://127.0.0.1:1/"}}).spec)


async def scraped(exporter: Exporter) -> dict[str, list[float]]:
    families = await exporter.families(asked(["864000"]))
    return {family.name: [each.value for each in family.samples] for family in families}


async def test_no_shard_counts_as_down_where_the_schedules_of_many_take_longer_than_a_scrape(
    shard: Shard, connection: AsyncConnection
) -> None:
    commands = Commands(shard.commands.queue, shards=8)
    for number in range(120):
        put(replace(shard, commands=commands), f"schedule-{number}", **HEAVY)
    found = await scraped(exporter(commands, connection))
    assert found["delayq_shard_down"] == []
    assert sum(found["delayq_due_within_tasks"]) < 120 * 14_400


async def test_a_scanner_without_the_libraries_exports_the_counts_without_them_and_logs_it_once(
    shard: Shard,
    connection: AsyncConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(shard, "each-minute")
    for name in ("scanner.upcoming", "schedules.unstored", "schedules.times", "schedules.cron"):
        monkeypatch.delitem(sys.modules, f"delayq.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    without = exporter(shard.commands, connection)
    for _ in range(2):
        found = await scraped(without)
        assert (found["delayq_shard_down"], found["delayq_due_within_tasks"]) == ([], [])
        assert found["delayq_tasks"] == [0] * 6
    assert [each.message for each in caplog.records if each.name == "delayq.scanner.exporter"] == [
        "occurrences_not_counted"
    ]
