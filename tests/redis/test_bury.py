"""bury: a task that can never succeed becomes a dead letter."""

from __future__ import annotations

from delayq.protocol.results import Failures, Settled, TaskRow
from delayq.protocol.results import State as In

from tests.redis.state import NOW, Shard, State, envelope


def test_a_buried_task_keeps_its_envelope_and_its_story(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:7": NOW + 9}, attempts={"a": "1 2 old"}))
    assert shard.run(shard.commands.bury(0, ["a:7", "no such order"])) == [Settled.BURIED]
    assert shard.whole() == before.but(
        processing={},
        attempts={},
        dlq={"a": NOW},
        dlq_info={"a": "2 2 buried no such order"},
        stats={"buried": 1},
    )
    failed = Failures(2, 2, "buried", "no such order")
    assert shard.run(shard.commands.list(0, In.DEAD, offset=0, limit=9)) == [
        TaskRow("a", In.DEAD, NOW, len(envelope()), failed)
    ]


def test_a_first_run_counts_as_a_failure(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}))
    shard.run(shard.commands.bury(0, ["a:7", ""]))
    assert shard.whole().dlq_info == {"a": "1 0 buried "}


def test_a_stale_token_changes_nothing(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:8": NOW}, dlq={"b": NOW}, dlq_info={"b": "1 0 buried x"}))
    assert shard.run(shard.commands.bury(0, ["a:7", "e", "b:7", "e"])) == [Settled.LEASE_LOST] * 2
    assert shard.whole() == before


def test_each_lease_of_a_batch_has_its_own_outcome(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW, "c:d:9": NOW}))
    outcomes = shard.run(shard.commands.bury(0, ["a:7", "x", "b:8", "y", "c:d:9", "z"]))
    assert outcomes == [Settled.BURIED, Settled.LEASE_LOST, Settled.BURIED]
    after = shard.whole()
    assert after.dlq_info == {"a": "1 0 buried x", "c:d": "1 0 buried z"}
    assert after.stats == {"buried": 2}
