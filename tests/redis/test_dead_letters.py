"""redrive and purge: a dead letter gets a new life, or is forgotten for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.commands import Call, Commands

DEAD = State(
    delayed={"w": NOW},
    dlq={"a": NOW - 9, "b": NOW - 8},
    dlq_info={"a": "3 1 attempts x", "b": "1 0 buried y"},
)
VERBS: dict[str, Callable[[Commands, str], Call[Any]]] = {
    "redrive": lambda c, ids: c.redrive(0, [item for each in ids for item in (each, 0)]),
    "purge": lambda c, ids: c.purge(0, list(ids)),
}


def test_a_redriven_dead_letter_is_delayed_again_and_its_failures_are_forgotten(shard: Shard) -> None:
    before = shard.seed(DEAD.but(delayed={"w": NOW + 999}))
    assert shard.run(shard.commands.redrive(0, ["a", 500])) == 1
    assert shard.whole() == before.but(
        delayed={"w": NOW + 999, "a": NOW + 500},
        dlq={"b": NOW - 8},
        dlq_info={"b": "1 0 buried y"},
        attempts={"a": f"0 0 @{NOW + 500} "},  # so that it survives the loss of an index
        alarm=1,
        stats={"redriven": 1},
    )


def test_a_purged_dead_letter_is_gone_whole(shard: Shard) -> None:
    before = shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["a"])) == 1
    assert shard.whole() == before.without(
        "a", dlq={"b": NOW - 8}, dlq_info={"b": "1 0 buried y"}, stats={"purged": 1}
    )


def test_a_dead_letter_that_died_after_the_listing_is_not_purged(shard: Shard) -> None:
    """Retention decides from a listing; a task that was redriven and died again since is a new dead letter."""
    shard.seed(DEAD)
    assert shard.run(shard.commands.purge(0, ["a", "b"], before_ms=NOW - 8)) == 1
    assert shard.whole().dlq == {"b": NOW - 8}


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_not_dead_is_left_alone(shard: Shard, verb: str) -> None:
    before = shard.seed(
        State(delayed={"d": NOW}, processing={"p:7": NOW}, retry={"r": NOW}, suspect={"s": 7})
    )
    assert shard.run(VERBS[verb](shard.commands, "dprsx")) == 0
    assert shard.whole() == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_batch_may_name_one_twice(shard: Shard, verb: str) -> None:
    shard.seed(DEAD)
    assert shard.run(VERBS[verb](shard.commands, "aab")) == 2
    assert shard.whole().stats == {"purged" if verb == "purge" else "redriven": 2}
