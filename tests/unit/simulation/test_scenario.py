"""Scenarios by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation import Arrival, Tasks, TooMany
from benchmarks.simulation.scenario import scenario


def test_a_spike_falls_due_at_one_instant() -> None:
    assert scenario("spike:2000@60s/500ms") == [Arrival(60.0, 0.5, tasks=2000)]
    assert scenario("spike") == scenario("spike:2000@60s/500ms")
    assert scenario("spike:3@1.5m", handler_seconds=2.0) == [Arrival(90.0, 2.0, tasks=3)]


def test_a_steady_load_is_known_and_even() -> None:
    found = scenario("steady:10/s@2s/1s")
    assert [each.due for each in found] == pytest.approx([number / 10 for number in range(1, 21)])
    assert {each.scheduled for each in found} == {0.0}
    assert len(scenario("steady:60/m@1h")) == 3600


def test_a_load_by_chance_is_scheduled_when_it_is_due_and_the_seed_says_which() -> None:
    found = scenario("poisson:100/s@100s", seed=1)
    assert all(each.due == each.scheduled for each in found)
    assert 9000 < len(found) < 11_000
    assert found == scenario("poisson:100/s@100s", seed=1) != scenario("poisson:100/s@100s", seed=2)


def test_a_day_has_its_noon_and_its_rush_and_all_its_tasks() -> None:
    tasks = Tasks.of(scenario("daily:10000"))
    assert len(tasks) == 10_000
    assert sum(1 for due in tasks.due if due == 9 * 3600) == 1000
    noon = sum(1 for due in tasks.due if 11 * 3600 <= due < 13 * 3600)
    night = sum(1 for due in tasks.due if due < 3600 or due >= 23 * 3600)
    assert 8 * night < noon < 12 * night


@pytest.mark.parametrize(
    "text",
    [
        "",
        "storm",
        "spike:",
        "spike:2000/s",
        "spike:-1",
        "steady:100",
        "steady:0/s",
        "daily@1h",
        "spike:1@60",
        "spike:²",
    ],
)
def test_what_is_no_scenario_is_told_what_one_is(text: str) -> None:
    with pytest.raises(ValueError, match="expected spike:2000@60s/500ms"):
        scenario(text)


@pytest.mark.parametrize(
    "text", ["spike:5000001", "steady:100000/s@1h", "poisson:999999999/s@999999999h", "daily:99999999"]
)
def test_too_many_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(TooMany, match="expected at most 5,000,000 tasks"):
        scenario(text)


@given(st.text(max_size=20))
def test_no_text_does_worse_than_that(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        scenario(f"!{text}")


def test_tasks_are_in_the_order_of_their_due_times_and_never_due_before_they_are_known() -> None:
    tasks = Tasks.of([Arrival(9.0, 1.0), Arrival(2.0, 2.0, scheduled=5.0, tasks=2), Arrival(-3.0, 3.0)])
    assert list(tasks.due) == [0.0, 5.0, 5.0, 9.0]
    assert list(tasks.handler_seconds) == [3.0, 2.0, 2.0, 1.0]
    assert (tasks.work_seconds, tasks.mean_handler_seconds) == (8.0, 2.0)
    assert list(tasks.until(5.0).due) == [0.0, 5.0, 5.0]
    with pytest.raises(TooMany):
        Tasks.of([Arrival(1.0, 1.0, tasks=3_000_000)] * 2)
