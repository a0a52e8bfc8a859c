"""ack: the work is done, and the task is forgotten."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Settled

from tests.redis.state import NOW, Shard, State


def test_an_acked_task_is_gone_whole(shard: Shard) -> None:
    """Lease, envelope and counts go; what is beside it stays."""
    before = shard.seed(
        State(processing={"a:7": NOW, "b:8": NOW}, attempts={"a": "1 0 x", "b": "2 0 y"}, stats={"acked": 4})
    )
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == [Settled.ACKED]
    assert shard.whole() == before.without(
        "a", processing={"b:8": NOW}, attempts={"b": "2 0 y"}, stats={"acked": 5}
    )


def test_a_stale_token_changes_nothing(shard: Shard) -> None:
    """Fenced: the lease was taken over, so this worker's result does not count."""
    before = shard.seed(State(processing={"a:8": NOW}))
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == [Settled.LEASE_LOST]
    assert shard.whole() == before


@pytest.mark.parametrize("home", ["delayed", "retry", "dlq"])
def test_a_task_that_was_taken_back_cannot_be_acked(shard: Shard, home: str) -> None:
    before = shard.seed(State().but(**{home: {"a": NOW}}, tasks=None))
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == [Settled.LEASE_LOST]
    assert shard.whole() == before


def test_an_expired_lease_that_nobody_took_back_still_holds(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW - 60_000}))
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == [Settled.ACKED]
    assert shard.whole() == State(stats={"acked": 1})


def test_each_lease_of_a_batch_has_its_own_outcome(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW, "c:9": NOW}))
    outcomes = shard.run(shard.commands.ack(0, [b"a:7", b"b:8", b"c:9", b"a:7"]))
    assert outcomes == [Settled.ACKED, Settled.LEASE_LOST, Settled.ACKED, Settled.LEASE_LOST]
    assert shard.whole() == State(stats={"acked": 2})


@pytest.mark.parametrize("task_id", ["a:b", "7:7", "*", "ü-漢", ":"])
def test_ids_may_hold_colons_and_globs(shard: Shard, task_id: str) -> None:
    shard.seed(State(processing={f"{task_id}:7": NOW}))
    shard.run(shard.commands.ack(0, [f"{task_id}:7".encode()]))
    assert shard.whole() == State(stats={"acked": 1})


def test_ten_thousand_leases_in_one_call(shard: Shard) -> None:
    """More than unpack() can take at once."""
    members = [f"t{n}:{n}" for n in range(10_000)]
    shard.seed(State(processing=dict.fromkeys(members, NOW)))
    outcomes = shard.run(shard.commands.ack(0, [member.encode() for member in members]))
    assert set(outcomes) == {Settled.ACKED}
    assert shard.whole() == State(stats={"acked": 10_000})
