"""The occurrences of a DelaySchedule: nominal times, and when each is due. Also what is wrong with a schedule."""

from __future__ import annotations

import time
from hashlib import blake2b
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSimError

from delayq.contract.problems import Problem, SpecError, quote
from delayq.contract.schedule import milliseconds
from delayq.schedules import cron_fields, zones
from delayq.schedules.cron import Cron, Nominal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from delayq.contract.schedule import DelaySchedule, ScheduleSpec

SLICE_SECONDS: Final = 0.002
"""How long it computes before others run: a wake must not be late."""
LOOKED_AT: Final = 500
"""Occurrences from which the shortest period is known: more than a year of daily ones."""


class Occurrence(NamedTuple):
    """One run of a schedule."""

    nominal: Nominal
    due_ms: int
    """The nominal time and the jitter, ms."""


class Times(Protocol):
    """Where nominal times come from."""

    def after(self, after_ms: int) -> Iterator[Nominal]:
        """Yield the times after an instant, in order."""


class Every:
    """Every so many ms, counted from an anchor."""

    def __init__(self, period_ms: int, anchor_ms: int) -> None:
        self._period_ms, self._anchor_ms = period_ms, anchor_ms

    def after(self, after_ms: int) -> Iterator[Nominal]:
        at = after_ms - (after_ms - self._anchor_ms) % self._period_ms
        while True:
            at += self._period_ms
            yield Nominal(at)


class Listed:
    """A list of instants."""

    def __init__(self, times_ms: list[int]) -> None:
        self._times_ms = sorted(set(times_ms))

    def after(self, after_ms: int) -> Iterator[Nominal]:
        yield from (Nominal(at) for at in self._times_ms if at > after_ms)


class Calendar:
    """The occurrences of one schedule."""

    def __init__(self, schedule: DelaySchedule) -> None:
        """Take a schedule that was checked when it was written: names of zones become fewer and more."""
        self.name, spec = schedule.metadata.name, schedule.spec
        self._first_ms = 0 if spec.start_time is None else _instant("startTime", spec.start_time)
        self._last_ms = None if spec.end_time is None else _instant("endTime", spec.end_time)
        self._times, self._jitter_ms = _times(spec), spec.jitter_seconds * 1000

    def checks(self, spec: ScheduleSpec) -> Iterator[None]:
        """Check what takes long; yields after each SLICE_SECONDS."""
        _check_ever(self._times, spec)
        if self._jitter_ms:
            yield from _check_jitter(self._times, self._jitter_ms, self._first_ms)

    def after(self, after_ms: int) -> Iterator[Occurrence]:
        """Yield the occurrences whose nominal time is after an instant, in the order of nominal times."""
        last = self._last_ms
        for nominal in self._times.after(max(after_ms, self._first_ms - 1)):
            if last is not None and nominal.at_ms > last:
                return
            yield Occurrence(nominal, nominal.at_ms + self.jitter_ms(nominal.at_ms))

    def jitter_ms(self, nominal_ms: int) -> int:
        """Return how much later than its nominal time an occurrence is due: always the same for the same one."""
        if not self._jitter_ms:
            return 0
        digest = blake2b(f"{self.name}@{nominal_ms}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % (self._jitter_ms + 1)


def checking(schedule: DelaySchedule) -> Generator[None, None, Calendar]:
    """Check a new schedule, and return its calendar; yields after each SLICE_SECONDS, so that others run in between.

    SpecError names the field whose value cannot be: an instant, a zone, an expression, the jitter.
    """
    _check_zone(schedule.spec.time_zone)
    calendar = Calendar(schedule)
    yield from calendar.checks(schedule.spec)
    return calendar


def checked(schedule: DelaySchedule) -> Calendar:
    """Return the same for callers that do not wait."""
    steps = checking(schedule)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            calendar: Calendar = done.value
            return calendar


def slice_ends() -> float:
    """Return when the slice that begins now is over, monotonic seconds."""
    return time.monotonic() + SLICE_SECONDS


def _times(spec: ScheduleSpec) -> Times:
    if spec.every_seconds is not None:
        anchor = 0 if spec.anchor_time is None else _instant("anchorTime", spec.anchor_time)
        return Every(spec.every_seconds * 1000, anchor)
    if spec.times is not None:
        return Listed([_instant(f"times[{number}]", each) for number, each in enumerate(spec.times)])
    return _cron(spec.cron or "", spec)  # the contract wants exactly one of the three


def _cron(expression: str, spec: ScheduleSpec) -> Cron:
    zone, changes = _zone(spec.time_zone or "UTC"), spec.daylight_saving
    expression = WORDS.get(expression, expression)
    star = any(field.startswith("*") for field in expression.split()[:2])
    gap = (changes and changes.gap) or ("Skip" if star else "RunAfter")
    overlap = (changes and changes.overlap) or ("Both" if star else "First")
    try:
        return Cron(expression, zone, after_gap=gap == "RunAfter", twice=overlap == "Both")
    except CronSimError:
        raise _refused("cron", cron_fields.wrong(expression.upper()) or _never(expression)) from None


WORDS: Final = {
    **dict.fromkeys(("@annually", "@yearly"), "0 0 1 1 *"),
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@hourly": "0 * * * *",
}


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _refused("timeZone", f"expected a time zone that this machine has, got {quote(name)}") from None


def _check_zone(name: str | None) -> None:
    """Refuse a name that means another zone elsewhere, such as localtime and right/UTC, and one that means none."""
    if name is None or name in zones.names():
        return
    near = zones.similar(name)
    hint = f": did you mean {near}?" if near else ""
    expected = "a time zone of the IANA database, such as Europe/Lisbon"
    raise _refused("timeZone", f"expected {expected}, got {quote(name)}{hint}")


def _instant(field: str, text: str) -> int:
    try:
        return milliseconds(text)
    except ValueError:
        raise _refused(field, f"expected a day that exists, got {quote(text)}") from None


def _check_ever(times: Times, spec: ScheduleSpec) -> None:
    if spec.cron is not None and next(times.after(0), None) is None:
        raise _refused("cron", _never(spec.cron))


def _never(expression: str) -> str:
    return f"expected a cron expression that matches some time, got {quote(expression)}"


def _check_jitter(times: Times, jitter_ms: int, first_ms: int) -> Iterator[None]:
    """Refuse a jitter that could change the order of occurrences."""
    found, ends = list[int](), slice_ends()
    for nominal in islice(times.after(first_ms), LOOKED_AT):
        found.append(nominal.at_ms)
        if time.monotonic() > ends:
            yield
            ends = slice_ends()
    shortest = min((later - at for at, later in pairwise(found)), default=None)
    if shortest is not None and jitter_ms >= shortest:
        message = f"expected less than the shortest time between two occurrences, {shortest // 1000}"
        raise _refused("jitterSeconds", f"{message}, got {jitter_ms // 1000}")


def _refused(field: str, message: str) -> SpecError:
    return SpecError((Problem(f"spec.{field}", message),))
