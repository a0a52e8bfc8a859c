"""For scrapes: how many occurrences of schedules fall due that are not stored yet. Not here: which (unstored.py)."""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.protocol.results import Selection
from delayq.schedules.times import slice_ends
from delayq.schedules.unstored import due_times

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Counts, ScheduleRecord

KEPT_SECONDS: Final = 10.0  # another process may have changed a schedule
AHEAD_MS: Final = 600_000  # further than a scrape asks for, so that few schedules are computed again
MOST_SCHEDULES: Final = 1000  # of a shard
MOST: Final = 20_000  # occurrences of a shard: five schedules of each second for an hour


class Times(NamedTuple):
    """The due times of a schedule, as long as its record is as `seen`."""

    seen: tuple[int, int, str]
    due_ms: array[int] = array("q")
    until_ms: int = 0

    def reach(self, until_ms: int) -> bool:
        """Whether they are all up to an instant, or as many as count."""
        return self.until_ms >= until_ms or len(self.due_ms) >= MOST


@dataclass
class Pass:
    """Reads the schedules of a shard once, over as many scrapes as that takes."""

    offset: int = 0
    there: set[str] = field(default_factory=set)
    over: bool = False


class Kept(NamedTuple):
    """The due times of a shard."""

    due_ms: array[int]
    until_ms: int
    tended: int
    over_at: float  # monotonic seconds


class Upcoming:
    """The occurrences of each shard."""

    def __init__(self, commands: Commands, connection: AsyncConnection, tended: Callable[[], int]) -> None:
        """`tended` changes whenever this process has stored occurrences: they must not count twice."""
        self._commands, self._connection, self._tended = commands, connection, tended
        self._kept: dict[int, Kept] = {}
        self._times: dict[int, dict[str, Times]] = {}  # by shard and record
        self._passes: dict[int, Pass] = {}  # those that are not over
        self._read_at: dict[int, float] = {}  # when there was time for a shard, monotonic seconds
        self._one = asyncio.Lock()  # shard groups are read concurrently: one computes at a time
        self._slice_ends = 0.0  # monotonic seconds

    def longest_ago(self, shards: Iterable[int]) -> list[int]:
        """Return shards in the order to read: else the first one could take the time of all others at each scrape."""
        return sorted(shards, key=lambda shard: self._read_at.get(shard, 0.0))

    async def added(self, shard: int, counts: Counts, stop_at: float) -> Counts:
        """Return the counts of a shard with these occurrences.

        Those that are not read and computed by `stop_at`, monotonic seconds, are missing; the next call goes on.
        """
        due_ms = await self._due_ms(shard, counts.now_ms, counts.now_ms + max(counts.due_within), stop_at)
        past = bisect_right(due_ms, counts.now_ms)
        within = {
            horizon: tasks + bisect_right(due_ms, counts.now_ms + horizon) - past
            for horizon, tasks in counts.due_within.items()
        }
        return replace(counts, due_within=within)

    async def _due_ms(self, shard: int, now_ms: int, until_ms: int, stop_at: float) -> array[int]:
        kept, tended, now = self._kept.get(shard), self._tended(), time.monotonic()
        if kept is None or kept.tended != tended or kept.until_ms < until_ms or now >= kept.over_at:
            last_ms = until_ms + round(KEPT_SECONDS * 1000)
            times = await self._read(shard, now_ms, last_ms, stop_at)
            complete = shard not in self._passes and all(each.reach(last_ms) for each in times)
            over_at = now + KEPT_SECONDS if complete else now
            kept = self._kept[shard] = Kept(_merged(times), last_ms, tended, over_at)
        return kept.due_ms

    async def _read(self, shard: int, now_ms: int, until_ms: int, stop_at: float) -> list[Times]:
        """Return the times of each schedule, and keep them at once: a scrape that is cancelled is no loss."""
        times, reading = self._times.setdefault(shard, {}), self._passes.pop(shard, None) or Pass()
        if (now := time.monotonic()) < stop_at:
            self._read_at[shard] = now
        try:
            await self._read_on(shard, reading, now_ms, until_ms, stop_at=stop_at)
        finally:
            if not reading.over:
                self._passes[shard] = reading
        if reading.over:
            for gone in times.keys() - reading.there:
                del times[gone]
        return list(times.values())

    async def _read_on(
        self, shard: int, reading: Pass, now_ms: int, until_ms: int, *, stop_at: float
    ) -> None:
        times = self._times[shard]
        async for record in self._records(shard, reading, stop_at):
            reading.there.add(record.id)
            seen, known = (record.version, record.cursor_ms, record.phase), times.get(record.id)
            if known is None or known.seen != seen:
                known = Times(seen)
            async with self._one:
                if await self._may_go_on(stop_at) and not known.reach(until_ms):
                    known = await self._computed(record, known, now_ms, until_ms + AHEAD_MS, stop_at=stop_at)
            times[record.id] = known

    async def _computed(
        self, record: ScheduleRecord, known: Times, now_ms: int, until_ms: int, *, stop_at: float
    ) -> Times:
        """Add the times up to an instant to those that are known, or as many as there is time for."""
        due_ms = known.due_ms[bisect_right(known.due_ms, now_ms) :]
        later = Selection(due_from_ms=known.until_ms + 1)
        for at_ms in islice(due_times(record, now_ms, until_ms, later), MOST - len(due_ms)):
            if not await self._may_go_on(stop_at):
                return Times(known.seen, due_ms, at_ms - 1)
            due_ms.append(at_ms)
        return Times(known.seen, due_ms, until_ms)

    async def _may_go_on(self, stop_at: float) -> bool:
        """Let others run when a slice is over: a wake must not be late. Return whether there is time left."""
        if time.monotonic() > self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = slice_ends()
        return time.monotonic() < stop_at

    async def _records(self, shard: int, reading: Pass, stop_at: float) -> AsyncIterator[ScheduleRecord]:
        """Yield the records of a shard, but for those that migrate: nothing is created of them here.

        When the time is up, the pass stays at the page, whose last records may not have been computed.
        """
        while not reading.over and time.monotonic() < stop_at:
            page = await self._connection.one(self._commands.list_schedules(shard, offset=reading.offset))
            for record in page.records:
                if self._commands.shard_of(record.id) == shard:
                    yield record
            if time.monotonic() < stop_at:
                reading.offset += page.entries
                reading.over = not page.entries or reading.offset >= min(page.schedules, MOST_SCHEDULES)


def _merged(times: list[Times]) -> array[int]:
    found = array("q")
    for each in times:
        found += each.due_ms[: MOST - len(found)]
    return array("q", sorted(found))
