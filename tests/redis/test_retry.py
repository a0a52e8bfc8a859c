"""retry: a failed task waits for its next attempt, or is buried when it had all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.protocol.results import Settled

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from delayq.protocol.scripts import Argument


def retry(shard: Shard, *settles: Argument, max_attempts: int = 3) -> list[Settled]:
    return shard.run(shard.commands.retry(0, settles, max_attempts=max_attempts))


def test_a_failed_task_waits_in_the_retry_set_from_the_time_of_its_failure(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:7": NOW + 9, "b:8": NOW}))
    assert retry(shard, "a:7", 60_000, 1, "boom") == [Settled.RETRIED]
    assert shard.whole() == before.but(
        processing={"b:8": NOW},
        retry={"a": NOW + 60_000},
        attempts={"a": f"1 0 @{NOW + 60_000} boom"},
        alarm=1,
        stats={"retried": 1},
    )


def test_a_retry_without_charge_costs_no_attempt(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": "2 1 old"}))
    assert retry(shard, "a:7", 5, 0, "later") == [Settled.RETRIED]
    assert shard.whole().attempts == {"a": f"2 1 @{NOW + 5} later"}


@pytest.mark.parametrize(
    ("failed", "outcome"), [(0, Settled.RETRIED), (1, Settled.RETRIED), (2, Settled.BURIED)]
)
def test_the_last_of_max_attempts_buries(shard: Shard, failed: int, outcome: Settled) -> None:
    """Three attempts are three runs: the third failure is the end."""
    before = shard.seed(State(processing={"a:7": NOW}, attempts={"a": f"{failed} 4 old"}))
    assert retry(shard, "a:7", 10, 1, "boom", max_attempts=3) == [outcome]
    if outcome is Settled.BURIED:
        expected = before.but(
            processing={},
            dlq={"a": NOW},
            attempts={},
            dlq_info={"a": "3 4 attempts boom"},
            stats={"buried": 1},
        )
    else:
        entry = {"a": f"{failed + 1} 4 @{NOW + 10} boom"}
        expected = before.but(
            processing={}, retry={"a": NOW + 10}, attempts=entry, alarm=1, stats={"retried": 1}
        )
    assert shard.whole() == expected


def test_one_attempt_means_no_retry(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}))
    assert retry(shard, "a:7", 10, 1, "boom", max_attempts=1) == [Settled.BURIED]


def test_crashes_are_not_attempts(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": "0 99 old"}))
    assert retry(shard, "a:7", 10, 1, "boom", max_attempts=2) == [Settled.RETRIED]


def test_a_stale_token_changes_nothing(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:8": NOW}, retry={"b": NOW}, attempts={"b": "1 0 x"}))
    assert retry(shard, "a:7", 0, 1, "boom", "b:7", 0, 1, "boom") == [Settled.LEASE_LOST] * 2
    assert shard.whole() == before


def test_each_lease_of_a_batch_has_its_own_outcome(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW, "c:9": NOW}, attempts={"c": "2 0 x"}))
    outcomes = retry(shard, "a:7", 9, 1, "e", "b:8", 9, 1, "e", "c:9", 9, 1, "e")
    assert outcomes == [Settled.RETRIED, Settled.LEASE_LOST, Settled.BURIED]
    assert shard.whole().stats == {"retried": 1, "buried": 1}


@pytest.mark.parametrize(
    ("delay_ms", "waiting", "wake", "alarm"),
    [(0, NOW + 9, 1, 0), (5, NOW + 9, 0, 1), (9, NOW + 9, 0, 0), (20, NOW + 9, 0, 0), (20, None, 0, 1)],
)
def test_hints_go_out_only_when_the_next_due_time_moved(
    shard: Shard, *, delay_ms: int, waiting: int | None, wake: int, alarm: int
) -> None:
    """Due now wakes a worker; earlier than all others sets the alarm; anything else is no news."""
    shard.seed(State(processing={"a:7": NOW}, retry={} if waiting is None else {"w": waiting}))
    retry(shard, "a:7", delay_ms, 1, "boom")
    after = shard.whole()
    assert (after.wake, after.alarm) == (wake, alarm)


@pytest.mark.parametrize("reason", ["", "two\nlines", "  spaces  ", "ü漢", "1 2 3", "%d %s", "x" * 100_000])
def test_any_reason_is_kept_and_read_back(shard: Shard, reason: str) -> None:
    """It is the last field of an entry, so nothing in it can be mistaken for another."""
    shard.seed(State(processing={"a:7": NOW}))
    retry(shard, "a:7", 0, 1, reason)
    view = shard.run(shard.commands.get("a"))
    assert view is not None
    assert (view.failed.failures, view.failed.crashes, view.failed.error) == (1, 0, reason)
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert lease.task.attempt == 2
    retry(shard, lease.member, 0, 1, reason, max_attempts=2)
    view = shard.run(shard.commands.get("a"))
    assert view is not None
    assert (view.failed.reason, view.failed.error) == ("attempts", reason)


def test_an_uncharged_retry_never_buries(shard: Shard) -> None:
    """Not even where maxAttempts was lowered below what the task has failed already."""
    shard.seed(State(processing={"a:7": NOW + 1}, attempts={"a": "5 0 x"}))
    assert shard.run(shard.commands.retry(0, [b"a:7", 100, 0, "later"], max_attempts=3)) == ["retried"]
    assert shard.whole().retry == {"a": NOW + 100}
