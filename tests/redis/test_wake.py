"""wake: one idle worker is hinted at when something is due, and a scanner learns how long it may sleep."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.redis.state import NOW, Shard, State


@pytest.mark.parametrize("home", ["delayed", "retry"])
def test_what_is_due_wakes_one_worker(shard: Shard, home: str) -> None:
    before = State().but(**{home: {"a": NOW, "b": NOW - 5}}, tasks=None)
    shard.seed(before)
    for _ in range(3):
        assert shard.run(shard.commands.wake(0)).due
    assert shard.whole() == before.but(wake=1)


@pytest.mark.parametrize("home", ["delayed", "retry"])
def test_what_is_not_due_is_waited_for_to_the_microsecond(shard: Shard, home: str) -> None:
    before = State().but(**{home: {"a": NOW + 250, "b": NOW + 900}}, tasks=None)
    shard.seed(before)
    wait = shard.run(shard.commands.wake(0))
    assert (wait.now_ms, wait.due, wait.next_expiry_seconds) == (NOW, False, None)
    assert wait.next_due_seconds is not None
    assert 0.249 < wait.next_due_seconds <= 0.250
    assert shard.whole() == before


def test_nothing_to_wait_for(shard: Shard) -> None:
    wait = shard.run(shard.commands.wake(0))
    assert (wait.due, wait.next_due_seconds, wait.next_expiry_seconds) == (False, None, None)
    assert shard.whole() == State()


@pytest.mark.parametrize(("expiry", "low", "high"), [(NOW - 5, 0, 0), (NOW + 250, 0.249, 0.25)])
def test_the_next_lease_to_run_out_is_told(shard: Shard, expiry: int, low: float, high: float) -> None:
    shard.seed(State(processing={"a:7": expiry, "b:8": NOW + 900}))
    seconds = shard.run(shard.commands.wake(0)).next_expiry_seconds
    assert seconds is not None
    assert low <= seconds <= high


def test_workers_are_woken_when_memory_is_full(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}))
    with shard.full_memory():
        assert shard.run(shard.commands.wake(0)).due
    assert shard.whole().wake == 1


def test_a_hint_that_nobody_took_is_told(shard: Shard) -> None:
    """So a scanner can look less often while every worker is busy."""
    shard.seed(State(delayed={"a": NOW}))
    assert [shard.run(shard.commands.wake(0)).untaken for _ in range(3)] == [False, True, True]


def test_what_is_due_already_does_not_hide_what_falls_due_next(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW - 9, "b": NOW + 250}))
    wait = shard.run(shard.commands.wake(0))
    assert wait.due
    assert wait.next_due_seconds is not None
    assert 0.249 < wait.next_due_seconds <= 0.250


@pytest.mark.parametrize("full", [False, True], ids=["", "memory_full"])
def test_a_scanners_look_leaves_one_of_too_many_alarms(shard: Shard, *, full: bool) -> None:
    """Somebody else's tokens would make a scanner look once for each of them."""
    shard.redis.rpush(shard.keys.alarm, *["1"] * 100_000)
    with shard.full_memory() if full else nullcontext():
        shard.run(shard.commands.wake(0))
    assert shard.whole() == State(alarm=1)


def test_an_alarm_of_another_type_costs_nobody_a_wake(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}))
    shard.redis.set(shard.keys.alarm, "not a list")
    assert shard.run(shard.commands.wake(0)).due
