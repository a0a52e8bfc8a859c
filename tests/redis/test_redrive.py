"""redrive: a dead letter gets a new life, with all attempts before it again."""

from __future__ import annotations

from tests.redis.state import NOW, Shard, State

DEAD = State(dlq={"a": NOW - 9, "b": NOW - 8}, dlq_info={"a": "3 1 attempts x", "b": "1 0 buried y"})


def test_a_dead_letter_is_delayed_again_and_its_story_is_forgotten(shard: Shard) -> None:
    before = shard.seed(DEAD)
    assert shard.run(shard.commands.redrive(0, ["a", 500])) == 1
    assert shard.whole() == before.but(
        delayed={"a": NOW + 500},
        dlq={"b": NOW - 8},
        dlq_info={"b": "1 0 buried y"},
        attempts={"a": f"0 0 @{NOW + 500} "},  # so that it survives the loss of an index
        alarm=1,
        stats={"redriven": 1},
    )


def test_it_runs_as_the_first_attempt(shard: Shard) -> None:
    shard.seed(DEAD)
    shard.run(shard.commands.redrive(0, ["a", 0]))
    assert shard.whole().wake == 1
    [lease] = shard.run(shard.commands.claim(0, 9, 1000)).leases
    assert (lease.task.id, lease.task.attempt) == ("a", 1)


def test_what_is_not_dead_is_left_alone(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW}, processing={"b:7": NOW}, retry={"c": NOW}))
    assert shard.run(shard.commands.redrive(0, ["a", 0, "b", 0, "c", 0, "gone", 0])) == 0
    assert shard.whole() == before


def test_redriving_twice_counts_once(shard: Shard) -> None:
    shard.seed(DEAD)
    assert shard.run(shard.commands.redrive(0, ["a", 0, "a", 0, "b", 7])) == 2
    assert shard.whole().delayed == {"a": NOW, "b": NOW + 7}
