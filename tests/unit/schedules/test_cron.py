"""The times of cron expressions, against a search by minutes in six time zones, and against cronsim's own zones."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from delayq.schedules.cron import GAP, Cron

ZONES = (
    *("Europe/Lisbon", "America/New_York", "Australia/Lord_Howe"),
    *("Asia/Kolkata", "America/Santiago", "Africa/Cairo"),
)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def changes(zone: ZoneInfo) -> list[datetime]:
    """The instants at which the zone's offset changes, to the minute."""
    found, at = [], FIRST
    while at < LAST:
        if at.astimezone(zone).utcoffset() != (at + timedelta(days=1)).astimezone(zone).utcoffset():
            minute = at
            while minute.astimezone(zone).utcoffset() == (minute + MINUTE).astimezone(zone).utcoffset():
                minute += MINUTE
            found.append(minute + MINUTE)
        at += timedelta(days=1)
    return found


def by_minutes(
    expression: str, zone: ZoneInfo, start: datetime, end: datetime, *, after_gap: bool, twice: bool
) -> list[int]:
    """Look at each minute: does its wall-clock time match? Walls in a gap match at the minute after it."""
    found: list[int] = []
    at = start
    day = timedelta(days=1)
    low, high = (each.astimezone(zone).replace(tzinfo=None) for each in (start - day, end + day))
    matching = set(takewhile(lambda wall: wall < high, CronSim(expression, low)))
    while at < end:
        at += MINUTE
        wall, before = (each.astimezone(zone).replace(tzinfo=None) for each in (at, at - MINUTE))
        due = wall in matching
        if due and not twice and at.astimezone(zone).fold:
            due = False
        skipped = before + MINUTE
        while after_gap and skipped < wall:
            due = due or skipped in matching
            skipped += MINUTE
        if due:
            found.append(int(at.timestamp()) * 1000)
    return found


def expressions(draw: random.Random) -> str:
    minute = draw.choice(["0", "30", "*/15", "5,35", "17-19", "*"])
    hour = draw.choice(["*", "0", "1", "2", "23", "1-3", "*/2", "0,12"])
    day = draw.choice(["*", "*", "1-7", "L", "28-31"])
    return f"{minute} {hour} {day} * {draw.choice(['*', '*', 'SUN', '0#1', '5L', '6-7'])}"


@pytest.mark.parametrize("name", ZONES)
def test_around_every_change_of_clocks_the_times_are_those_of_a_search_by_minutes(name: str) -> None:
    zone, draw = ZoneInfo(name), random.Random(name)
    around = changes(zone) or [datetime(2027, 6, 1, tzinfo=UTC)]
    for change in around:
        for _ in range(3):
            expression, after_gap, twice = expressions(draw), draw.random() < 0.5, draw.random() < 0.5
            start = change - timedelta(minutes=draw.randrange(2000))
            end = change + timedelta(minutes=draw.randrange(2000))
            cron = Cron(expression, zone, after_gap=after_gap, twice=twice)
            found = []
            for nominal in cron.after(int(start.timestamp()) * 1000):
                if nominal.at_ms > end.timestamp() * 1000:
                    break
                found.append(nominal.at_ms)
            wanted = by_minutes(expression, zone, start, end, after_gap=after_gap, twice=twice)
            assert found == wanted, (expression, start, after_gap, twice)


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize(
    "expression", ["30 1 * * *", "15 2 * * SUN", "0 0 1 * *", "*/20 * * * *", "30 */3 * * *"]
)
def test_the_defaults_are_those_of_debian_cron(name: str, expression: str) -> None:
    zone = ZoneInfo(name)
    star = any(field.startswith("*") for field in expression.split()[:2])
    ours = Cron(expression, zone, after_gap=not star, twice=star).after(int(FIRST.timestamp()) * 1000)
    theirs = CronSim(expression, FIRST.astimezone(zone))
    found = [nominal.at_ms for nominal in islice(ours, 1000)]
    assert found == [int(each.timestamp()) * 1000 for each in islice(theirs, 1000)]


def test_a_time_in_a_gap_tells_the_wall_clock_time_that_it_stands_for() -> None:
    start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    cron = Cron("30 1 * * *", ZoneInfo("Europe/Lisbon"), after_gap=True, twice=False)
    first = next(cron.after(int(start.timestamp()) * 1000))
    assert (first.at_ms, first.moved) == (1_774_746_000_000, GAP)
    assert first.wall == datetime(2026, 3, 29, 1, 30)  # noqa: DTZ001 -- on the wall
