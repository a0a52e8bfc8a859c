"""For scrapes: how many occurrences of schedules fall due that are not stored yet. Not here: which (unstored.py)."""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_right
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.schedules.unstored import due_times

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Counts, ScheduleRecord

KEPT_SECONDS: Final = 10.0  # another process may have changed a schedule
AHEAD_MS: Final = 600_000  # further than a scrape asks for, so that few schedules are computed again
MOST_SECONDS: Final = 0.5  # of computing for a scrape; the next one goes on
MOST_SCHEDULES: Final = 1000  # of a shard
MOST: Final = 20_000  # occurrences of a shard: five schedules of each second for an hour
SLICE: Final = 100  # occurrences that are computed before others run: a wake must not be late


class Times(NamedTuple):
    """The due times of a schedule, as long as its record is as `seen`."""

    due_ms: array[int]
    until_ms: int
    seen: tuple[int, int, str]


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

    async def added(self, shard: int, counts: Counts) -> Counts:
        """Return the counts of a shard with these occurrences."""
        due_ms = await self._due_ms(shard, counts.now_ms, counts.now_ms + max(counts.due_within))
        past = bisect_right(due_ms, counts.now_ms)
        within = {
            horizon: tasks + bisect_right(due_ms, counts.now_ms + horizon) - past
            for horizon, tasks in counts.due_within.items()
        }
        return replace(counts, due_within=within)

    async def _due_ms(self, shard: int, now_ms: int, until_ms: int) -> array[int]:
        kept, tended, now = self._kept.get(shard), self._tended(), time.monotonic()
        if kept is None or kept.tended != tended or kept.until_ms < until_ms or now >= kept.over_at:
            last_ms = until_ms + round(KEPT_SECONDS * 1000)
            kept = Kept(await self._merged(shard, now_ms, last_ms), last_ms, tended, now + KEPT_SECONDS)
            self._kept[shard] = kept
        return kept.due_ms

    async def _merged(self, shard: int, now_ms: int, until_ms: int) -> array[int]:
        before, times, found = self._times.get(shard, {}), dict[str, Times](), array("q")
        stop_at = time.monotonic() + MOST_SECONDS
        async for record in self._records(shard):
            seen, known = (record.version, record.cursor_ms, record.phase), before.get(record.id)
            if known is None or known.seen != seen or known.until_ms < until_ms:
                if time.monotonic() > stop_at:
                    continue
                last_ms = until_ms + AHEAD_MS
                known = Times(await self._computed(record, now_ms, last_ms), last_ms, seen)
            times[record.id] = known
            found += known.due_ms[: MOST - len(found)]
        self._times[shard] = times
        return array("q", sorted(found))

    async def _computed(self, record: ScheduleRecord, now_ms: int, until_ms: int) -> array[int]:
        found, times = array("q"), due_times(record, now_ms, until_ms)
        while len(found) < MOST and (some := array("q", islice(times, SLICE))):
            found += some
            await asyncio.sleep(0)
        return found

    async def _records(self, shard: int) -> AsyncIterator[ScheduleRecord]:
        """Yield the records of a shard, but for those that migrate: nothing is created of them here."""
        offset, entries = 0, 1
        while entries and offset < MOST_SCHEDULES:
            page = await self._connection.one(self._commands.list_schedules(shard, offset=offset))
            for record in page.records:
                if self._commands.shard_of(record.id) == shard:
                    yield record
            entries = page.entries
            offset += entries
