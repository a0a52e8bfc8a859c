"""purge: dead letters are forgotten for good."""

from __future__ import annotations

from tests.redis.state import NOW, Shard, State

DEAD = State(
    delayed={"w": NOW},
    dlq={"a": NOW - 9, "b": NOW - 8},
    dlq_info={"a": "3 1 attempts x", "b": "1 0 buried y"},
)


def test_a_purged_dead_letter_is_gone_whole(shard: Shard) -> None:
    before = shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["a"])) == 1
    assert shard.whole() == before.without(
        "a", dlq={"b": NOW - 8}, dlq_info={"b": "1 0 buried y"}, stats={"purged": 1}
    )


def test_those_that_died_later_are_kept(shard: Shard) -> None:
    """Retention decides from a listing; whoever was redriven and died again meanwhile is not meant."""
    shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["a", "b"], before_ms=NOW - 8)) == 1
    assert shard.whole().dlq == {"b": NOW - 8}


def test_the_living_are_left_alone(shard: Shard) -> None:
    before = shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["w", "gone"])) == 0
    assert shard.whole() == before


def test_a_batch_may_name_one_twice(shard: Shard) -> None:
    shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["a", "a", "b"])) == 2
    assert shard.whole() == State(delayed={"w": NOW}, stats={"purged": 2})
