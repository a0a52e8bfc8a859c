"""release: work is handed back and no attempt is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.protocol.results import Settled

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from delayq.protocol.scripts import Argument


def test_a_fresh_task_goes_home_to_delayed_with_its_own_due_time(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:7": NOW + 9}))
    assert shard.run(shard.commands.release(0, ["a:7", NOW - 50])) == [Settled.RELEASED]
    assert shard.whole() == before.but(processing={}, delayed={"a": NOW - 50}, wake=1, stats={"released": 1})


@pytest.mark.parametrize("entry", ["1 0 boom", "0 1 ", "0 0 later"])
def test_a_task_that_failed_crashed_or_waited_goes_home_to_retry(shard: Shard, entry: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW + 9}, attempts={"a": entry}))
    shard.run(shard.commands.release(0, ["a:7", NOW - 50]))
    assert shard.whole() == before.but(processing={}, retry={"a": NOW - 50}, wake=1, stats={"released": 1})


def test_a_claim_after_a_release_is_the_same_attempt(shard: Shard) -> None:
    shard.seed(State(retry={"a": NOW}, attempts={"a": "1 0 boom"}))
    [lease] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    shard.run(shard.commands.release(0, [lease.member, lease.task.due_ms]))
    [again] = shard.run(shard.commands.claim(0, 1, 1000)).leases
    assert (again.task.attempt, again.task.due_ms) == (lease.task.attempt, lease.task.due_ms)
    assert again.task.token > lease.task.token


def test_a_stale_token_changes_nothing(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:8": NOW}, retry={"b": NOW + 5}, dlq={"c": NOW}))
    settles: list[Argument] = ["a:7", NOW, "b:7", NOW, "c:7", NOW, "gone:7", NOW]
    assert shard.run(shard.commands.release(0, settles)) == [Settled.LEASE_LOST] * 4
    assert shard.whole() == before


def test_positions_name_the_lost_ones(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW, "c:9": NOW}))
    outcomes = shard.run(shard.commands.release(0, ["a:7", NOW, "b:8", NOW, "c:9", NOW]))
    assert outcomes == [Settled.RELEASED, Settled.LEASE_LOST, Settled.RELEASED]
    assert shard.whole().stats == {"released": 2}


def test_a_task_due_later_sets_the_alarm(shard: Shard) -> None:
    """After the clock stepped back, what was claimed may not be due any more."""
    shard.seed(State(processing={"a:7": NOW}, delayed={"b": NOW + 9}))
    shard.run(shard.commands.release(0, ["a:7", NOW + 5]))
    after = shard.whole()
    assert (after.wake, after.alarm) == (0, 1)
