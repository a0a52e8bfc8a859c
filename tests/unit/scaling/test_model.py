"""The fluid model against numbers worked out by hand."""

from __future__ import annotations

from math import exp, inf
from typing import Any

import pytest
from delayq.scaling.model import (
    Fleet,
    Inflow,
    Load,
    Moment,
    late_seconds,
    passed,
    required,
    rounds,
    suffices,
)

H = 0.5


def left(tasks: float, seconds: float, *, rate: float = 0.0, slots: int = 10, handler: float = H) -> float:
    return passed(tasks, rate=rate, slots=slots, seconds=seconds, handler_seconds=handler)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (left(100, 2.0), 60),  # ten slots of half a second finish twenty a second
        (left(10, 0.5), 10 * exp(-1)),  # with slots to spare, each is done after its own time
        (left(30, 1.5), 10 * exp(-1)),  # twenty go in the first second, the last ten fade
        (left(0, 60.0, rate=10), 5),  # Little's law: ten a second of half a second each
        (left(200, 60.0, rate=10), 5),
        (left(5, 3.0, rate=2, slots=0), 11),
        (left(5000, 0.1, rate=1000, handler=0.0), 0),
    ],
)
def test_what_is_left_after_a_time(rest: float, expected: float) -> None:
    assert rest == pytest.approx(expected)


@pytest.mark.parametrize(
    ("late", "handler", "number"), [(1, 0.4, 3), (1, 0.5, 2), (1, 0.95, 1), (0, 9, 1), (1, 0, inf)]
)
def test_rounds_keep_a_reserve_of_a_tenth(late: float, handler: float, number: float) -> None:
    """Handlers of exactly 0.5 s begin twice in a second, not three times: the third would be a hair too late."""
    assert rounds(late, handler) == number


TEN_AWAY: dict[str, Any] = {"slots": 32, "lead_seconds": 10}


@pytest.mark.parametrize(
    ("load", "fleet", "workers"),
    [
        # What the workers there have mastered when another one comes is out of its reach.
        (Load(present=0, inflows=[Inflow(1, 1, 200)], handler_seconds=H), Fleet(ready=1, **TEN_AWAY), 1),
        (
            Load(present=65, held=65, handler_seconds=0.001),
            Fleet(slots=32, ready=5),
            3,
        ),  # what runs keeps its slots
        (Load(present=0, handler_seconds=H), Fleet(slots=32), 0),
    ],
)
def test_as_many_workers_are_required_as_begin_the_tasks_in_time(
    load: Load, fleet: Fleet, workers: int
) -> None:
    assert required(load, fleet, 1.0) == workers


@pytest.mark.parametrize(
    ("ready", "starting_in"), [(0, 10.0), (0, 3.0), (0, 0.0), (1, 9.0), (1, 2.0), (31, 0.0), (32, 0.0)]
)
def test_workers_that_were_asked_for_a_rush_are_needed_until_it_is_over(
    ready: int, starting_in: float
) -> None:
    """A worker that is starting never counts as later than one that was not requested yet."""
    fleet = Fleet(
        slots=32, ready=ready, starting=32 - ready, starting_in=starting_in, lead_seconds=starting_in + 1.0
    )
    for due_in in (starting_in, starting_in + 0.5, starting_in + 5.0):
        load = Load(present=0, inflows=[Inflow(due_in, due_in, 2000)], handler_seconds=H)
        assert required(load, fleet, 1.0) == 32
    assert required(Load(present=2000, handler_seconds=H), fleet, 1.0) <= 32


def test_a_backlog_that_lasts_until_new_workers_come_asks_for_them() -> None:
    """Of 1,000 tasks ten slots have done 200 in 10 s: for the other 800, 400 slots are enough and 390 are not."""
    load = Load(present=1000, handler_seconds=H)
    fleet = Fleet(slots=10, ready=1, lead_seconds=10.0)
    assert required(load, fleet, 1.0) == 40
    assert [suffices(each, load, fleet, 1.0) for each in (1, 2, 39, 40, 50)] == [False] * 3 + [True] * 2


REPORTS: dict[str, Any] = {"kinds": ((0.02, 60.0), (0.98, 0.01)), "handler_seconds": 1.2098}


def test_kinds_need_no_more_slots_than_all_of_them_at_once() -> None:
    """200 reports and 9,800 e-mails at once: a mean of 1.2 s would give each of them a slot.

    In the fifth of a second that is certain, a slot begins one report or 19 e-mails.
    """
    load = Load(present=0, inflows=[Inflow(10, 10, 10_000)], **REPORTS)
    assert load.slots_at_once(0.2) == pytest.approx(200 + 9_800 / 19)
    assert required(load, Fleet(slots=10), 1.0) == 72
    held = Load(present=50, held=50, inflows=[Inflow(10, 10, 10_000)], **REPORTS)
    assert held.slots_at_once(0.2) == pytest.approx(50 + 200 + 9_800 / 19), "tasks in flight keep theirs"


def test_kinds_that_come_steadily_need_what_their_mean_needs() -> None:
    """Little's law: ten a second of 5 s in the mean, however they differ."""
    load = Load(
        present=50, held=50, inflows=[Inflow(0, 60, 600)], kinds=((0.5, 9.9), (0.5, 0.1)), handler_seconds=5.0
    )
    alike = Load(present=50, held=50, inflows=[Inflow(0, 60, 600)], handler_seconds=5.0)
    fleet = Fleet(slots=5, ready=10)
    assert required(load, fleet, 1.0) == required(alike, fleet, 1.0) == 10


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.5, 60.0])
def test_one_kind_is_as_none(seconds: float) -> None:
    for lateness in (0.1, 1.0, 100.0):
        loads = [
            Load(present=70, inflows=[Inflow(5, 9, 900)], kinds=kinds, handler_seconds=seconds)
            for kinds in ((), ((1.0, seconds),))
        ]
        one, none = (required(each, Fleet(slots=3, lead_seconds=2), lateness) for each in loads)
        assert one == none


def test_the_rest_of_a_fading_rate_makes_no_task_late_and_needs_no_worker() -> None:
    """After half a minute 1e-25 of a task is still there: with a full load on top, one slot would be too few."""
    assert late_seconds(Moment(0, 10 + 1e-9, 10), H) == 0
    load = Load(present=32, inflows=[Inflow(30, 30, 64)], handler_seconds=H)
    assert required(load, Fleet(slots=32, lead_seconds=10), 1.0) == 1
