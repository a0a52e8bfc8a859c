"""Workers and lateness, span by span: numbers that can be worked out by hand, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from delayq.forecast import Bin, Now, Supply, outlook
from hypothesis import given
from hypothesis import strategies as some

HOUR = 3_600_000
HOURS = [(hour * HOUR, (hour + 1) * HOUR) for hour in range(4)]
SUPPLY = Supply(slots=10, handler_seconds=1.0, lateness_seconds=10.0, workers=20, lead_seconds=0.0)
"""A slot begins 1 + floor(10 / 1.1) = 10 handlers in time: a worker 100."""
NOW = Now(0)


def rush(hour: float, tasks: int) -> Bin:
    """Tasks at one instant."""
    return Bin(round(hour * HOUR), round(hour * HOUR) + 100, tasks)


def flow(hour: int, tasks: int) -> Bin:
    """Tasks that come evenly within an hour."""
    return Bin(hour * HOUR, (hour + 1) * HOUR, tasks)


def reported(*bins: Bin, now: Now = NOW, supply: Supply = SUPPLY) -> list[tuple[int, int, object]]:
    found = outlook(bins, HOURS, now, supply)
    return [(each.tasks, each.workers, pytest.approx(each.late_seconds)) for each in found]


NOTHING = (0, 0, 0)


def test_a_rush_takes_as_many_workers_as_begin_it_in_time_and_is_late_with_fewer() -> None:
    """6,000 tasks: 60 workers of 100 each; the 200 slots of 20 workers need 30 rounds, the last begins after 29 s."""
    assert reported(rush(2, 6000)) == [NOTHING, NOTHING, (6000, 60, 29), NOTHING]


def test_a_rush_late_in_the_hour_does_not_make_what_is_due_before_it_late() -> None:
    backlog = [rush(0.5, 400_000), flow(1, 10), rush(3.75, 5)]
    found = outlook(backlog, HOURS, Now(0), SUPPLY)
    assert found[0].late_seconds == pytest.approx(1999)
    assert found[1].late_seconds == pytest.approx(199, abs=1), "200 s of the backlog are left at 01:00"
    assert found[3].late_seconds == 0


def test_overdue_tasks_are_due_now_and_as_late_as_they_are() -> None:
    now = Now(0, overdue=100, oldest_overdue_ms=90_000)
    assert reported(now=now)[0] == (100, 1, 90)
    assert reported(now=now, supply=replace(SUPPLY, lead_seconds=15))[0] == (100, 1, 105)


def test_overdue_tasks_may_be_told_in_a_span_of_no_length_before_all_others() -> None:
    now = Now(0, overdue=500, oldest_overdue_ms=4000)
    whole = outlook([rush(1, 3000)], HOURS, now, SUPPLY)
    overdue, first, *rest = outlook([rush(1, 3000)], [(0, 0), *HOURS], now, SUPPLY)
    assert (overdue.tasks, overdue.workers, overdue.late_seconds) == (500, 5, whole[0].late_seconds)
    assert (first.tasks, first.late_seconds) == (0, 0.0)
    assert rest == whole[1:]


def test_workers_that_hold_leases_are_there_and_need_no_start() -> None:
    slow = replace(SUPPLY, lead_seconds=60)
    assert reported(rush(0, 10), supply=slow)[0] == (10, 1, 60)
    assert reported(rush(0, 10), now=Now(0, processing=10), supply=slow)[0] == (10, 1, 1)


def test_what_runs_on_keeps_its_workers() -> None:
    """1,000 handlers of an hour each, begun at once, need their slots in the next hour, too."""
    long = replace(SUPPLY, handler_seconds=3600.0, workers=200)
    found = outlook([rush(1.9, 1000), flow(2, 1)], HOURS, Now(0), long)
    assert found[1].workers == 100
    assert found[2].workers > 80


def test_without_any_worker_no_task_begins() -> None:
    none = replace(SUPPLY, workers=0)
    assert reported(rush(1, 5), supply=none) == [NOTHING, (5, 1, inf), NOTHING, NOTHING]
    assert reported(now=Now(0, overdue=1), supply=none)[0] == (1, 1, inf)


BINS = some.lists(
    some.builds(
        Bin,
        some.integers(0, 40).map(lambda tenth: tenth * HOUR // 10),
        some.just(0),
        some.integers(0, 50_000),
    ),
    max_size=8,
    unique_by=lambda each: each.start_ms,
).map(
    lambda bins: [
        each._replace(end_ms=each.start_ms + (100 if each.tasks % 2 else HOUR // 10))
        for each in sorted(bins)
        if each.start_ms < 4 * HOUR
    ]
)
SUPPLIES = some.builds(
    Supply,
    slots=some.integers(1, 100),
    handler_seconds=some.floats(0.001, 600),
    lateness_seconds=some.integers(1, 600).map(float),
    workers=some.integers(0, 100),
    lead_seconds=some.floats(0, 300),
)
NOWS = some.builds(
    Now, some.just(0), some.integers(0, 5000), some.integers(0, 100_000), some.integers(0, 500)
)


@given(BINS, NOWS, SUPPLIES)
def test_every_task_is_reported_and_workers_are_needed_where_tasks_are(
    bins: list[Bin], now: Now, supply: Supply
) -> None:
    found = outlook(bins, HOURS, now, supply)
    assert [(each.start_ms, each.end_ms) for each in found] == HOURS
    assert sum(each.tasks for each in found) == sum(each.tasks for each in bins) + now.overdue
    assert all(each.workers >= 1 for each in found if each.tasks)
    assert all(each.late_seconds == 0 for each in found if not each.tasks)
