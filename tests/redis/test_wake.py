"""wake: one idle worker is woken when a task is due, and the scanner gets the time until the next event."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.redis.state import NOW, Shard, State


@pytest.mark.parametrize("home", ["delayed", "retry"])
def test_what_is_due_wakes_one_worker(shard: Shard, home: str) -> None:
    """Also with all memory in use."""
    before = State().but(**{home: {"a": NOW, "b": NOW - 5}}, tasks=None)
    shard.seed(before)
    with shard.full_memory():
        for _ in range(3):
            assert shard.run(shard.commands.wake(0)).due
    assert shard.whole() == before.but(wake=1)


@pytest.mark.parametrize("overdue", [{}, {"o": NOW - 9}], ids=["", "overdue"])
@pytest.mark.parametrize("home", ["delayed", "retry"])
def test_the_next_due_time_is_exact_with_any_number_of_due_tasks(
    shard: Shard, home: str, overdue: dict[str, int]
) -> None:
    before = State().but(**{home: {"a": NOW + 250, "b": NOW + 900} | overdue}, wake=len(overdue), tasks=None)
    shard.seed(before)
    wait = shard.run(shard.commands.wake(0))
    assert (wait.now_ms, wait.due, wait.next_expiry_seconds) == (NOW, bool(overdue), None)
    assert wait.next_due_seconds is not None
    assert 0.249 < wait.next_due_seconds <= 0.250
    assert shard.whole() == before


@pytest.mark.parametrize(
    ("expiry", "low", "high"), [(NOW - 5, 0, 0), (NOW + 250, 0.249, 0.25), (-NOW - 9, 0, 0)]
)
def test_the_next_expiry_of_a_lease_is_returned(shard: Shard, expiry: int, low: float, high: float) -> None:
    """A deferred lease counts as expired: reclaim takes it back once the document names no check."""
    shard.seed(State(processing={"a:7": expiry, "b:8": NOW + 900}))
    seconds = shard.run(shard.commands.wake(0)).next_expiry_seconds
    assert seconds is not None
    assert low <= seconds <= high


@pytest.mark.parametrize("full", [False, True], ids=["", "memory_full"])
def test_a_scanners_look_leaves_one_of_too_many_alarms(shard: Shard, *, full: bool) -> None:
    """Another client's tokens would make a scanner poll once for each of them."""
    shard.redis.rpush(shard.keys.alarm, *["1"] * 100_000)
    with shard.full_memory() if full else nullcontext():
        shard.run(shard.commands.wake(0))
    assert shard.whole() == State(alarm=1)


def test_an_alarm_of_another_type_does_not_stop_the_wake_token(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}))
    shard.redis.set(shard.keys.alarm, "not a list")
    assert shard.run(shard.commands.wake(0)).due
