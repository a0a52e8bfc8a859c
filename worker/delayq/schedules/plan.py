"""Which occurrences of a schedule are created now, which were missed, and when to look again. No I/O."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.protocol.envelope import NO_LIMIT_MS
from delayq.schedules.times import Calendar, slice_ends

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from delayq.contract.schedule import DelaySchedule, Misfire
    from delayq.schedules.times import Occurrence

AHEAD_MS: Final = 600_000
"""How far ahead occurrences exist at least."""
MOST: Final = 1000
"""Occurrences of one schedule that exist ahead of time at most, and that a look after an outage creates."""
AHEAD_BYTES: Final = 1 << 20
"""Of the occurrences of one schedule that exist ahead of time, unless one is larger."""
QUEUE_AHEAD_BYTES: Final = 64 << 20
"""Of those of a queue: where its schedules are many, each has an even part."""
NO_MORE_MS: Final = 253_402_300_799_000
"""The cursor of a schedule whose times are over: the end of the year 9999."""
ROUND_MS: Final = 10_000
"""Looks are at multiples of this, so that many schedules share a call."""


class Due(NamedTuple):
    """An occurrence to create."""

    nominal_ms: int
    due_ms: int
    within_ms: int


class Plan(NamedTuple):
    """What to do with a schedule now."""

    create: Sequence[Due]
    """At most MOST of the past, the latest ones, and then those ahead, in order."""
    missed: int
    cursor_ms: int
    """All occurrences up to this nominal time are created or missed."""
    look_ms: int | None
    """When to look again; None: never, unless it is changed."""


def most_ahead(size: int, schedules: int, shards: int) -> int:
    """Return how many occurrences of `size` bytes exist ahead at most, where so many schedules share a shard."""
    part = QUEUE_AHEAD_BYTES // shards // max(1, schedules)
    return max(1, min(MOST, min(AHEAD_BYTES, part) // size))


async def planned(
    schedule: DelaySchedule, cursor_ms: int, now_ms: int, *, ahead_ms: int = AHEAD_MS, most: int = MOST
) -> Plan:
    """Return the occurrences after the cursor: of the past those that may still begin, and those created ahead.

    These are up to twice `ahead_ms` from now, and at most `most` with those that exist. Others run in between.
    """
    steps = _planning(schedule, cursor_ms, now_ms, ahead_ms, most=most)
    while (plan := _continued(steps)) is None:  # noqa: ASYNC110 -- it computes, and lets others run
        await asyncio.sleep(0)
    return plan


def planned_at_once(schedule: DelaySchedule, cursor_ms: int, now_ms: int) -> Plan:
    """Return the same for callers that do not wait, without occurrences created ahead."""
    steps = _planning(schedule, cursor_ms, now_ms, ahead_ms=0, most=MOST)
    while (plan := _continued(steps)) is None:
        pass
    return plan


def _continued(steps: Generator[None, None, Plan]) -> Plan | None:
    """Compute for another slice; return the plan when it is complete."""
    try:
        next(steps)
    except StopIteration as done:
        plan: Plan = done.value
        return plan
    return None


def _planning(
    schedule: DelaySchedule, cursor_ms: int, now_ms: int, ahead_ms: int, *, most: int
) -> Generator[None, None, Plan]:
    """Compute a plan; yields after each SLICE_SECONDS."""
    if schedule.spec.suspend:
        return Plan((), 0, cursor_ms, None)
    past, ahead, count, last, ends = deque[Due](maxlen=MOST), list[Due](), 0, cursor_ms, slice_ends()
    exist = 0  # occurrences ahead
    for due in _limited(Calendar(schedule), schedule.spec.misfire, min(cursor_ms, now_ms)):
        if time.monotonic() > ends:
            yield
            ends = slice_ends()
        if due is None:
            continue
        if due.nominal_ms > now_ms + 2 * ahead_ms:
            look_ms = _look(due.nominal_ms - ahead_ms)
            return Plan([*past, *ahead], count - len(past), due.nominal_ms - 1, look_ms)
        if due.nominal_ms <= cursor_ms:
            exist += 1
            continue
        if due.nominal_ms > now_ms:
            if exist + len(ahead) >= most:
                look_ms = min(_look(max(now_ms + 1, last - ahead_ms)), last)  # before none is ahead any more
                return Plan([*past, *ahead], count - len(past), last, look_ms)
            ahead.append(due)
        else:
            count += 1
            if now_ms <= due.due_ms + due.within_ms:
                past.append(due)
        last = due.nominal_ms
    return Plan([*past, *ahead], count - len(past), NO_MORE_MS, None)


def _look(at_ms: int) -> int:
    return -(-at_ms // ROUND_MS) * ROUND_MS


def _limited(calendar: Calendar, misfire: Misfire, cursor_ms: int) -> Iterator[Due | None]:
    """Yield the occurrences after the cursor, with the time within which each may begin; None: not yet known."""
    following = {"RunOnce": 1, "RunAll": misfire.max_runs or 0, "Skip": 0}[misfire.policy]
    latest = NO_LIMIT_MS if misfire.max_lateness_seconds is None else misfire.max_lateness_seconds * 1000
    window: deque[Occurrence] = deque()
    for each in calendar.after(cursor_ms):
        window.append(each)
        known = len(window) > following
        yield _due(window.popleft(), latest, each.due_ms if following else None) if known else None
    for each in window:
        yield _due(each, latest, None)


def _due(each: Occurrence, latest: int, superseded_ms: int | None) -> Due:
    within = latest if superseded_ms is None else max(0, min(latest, superseded_ms - each.due_ms - 1))
    return Due(each.nominal.at_ms, each.due_ms, within)
