"""cancel: a task that is not running is forgotten."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Cancelled

from tests.redis.state import NOW, Shard, State, envelope


@pytest.mark.parametrize("home", ["delayed", "retry"])
@pytest.mark.parametrize("due_ms", [NOW - 1, NOW + 1])
def test_a_waiting_task_is_gone_whole(shard: Shard, home: str, due_ms: int) -> None:
    before = State(attempts={"a": "1 0 x"}).but(**{home: {"a": due_ms, "b": due_ms}}, tasks=None)
    shard.seed(before)
    assert shard.run(shard.commands.cancel("a")) is Cancelled.CANCELLED
    assert shard.whole() == before.without("a", **{home: {"b": due_ms}}, attempts={}, stats={"cancelled": 1})


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State(), Cancelled.NOT_FOUND),
        (State(processing={"a:7": NOW}), Cancelled.IN_FLIGHT),
        (State(dlq={"a": NOW}, dlq_info={"a": "1 0 buried x"}), Cancelled.DEAD),
        (State(tasks={"a": envelope()}), Cancelled.IN_FLIGHT),
    ],
    ids=["unknown", "in flight", "dead", "orphan"],
)
def test_anything_else_is_left_alone(shard: Shard, state: State, outcome: Cancelled) -> None:
    """An orphan looks like a running task until the reaper adopts it."""
    shard.seed(state)
    assert shard.run(shard.commands.cancel("a")) is outcome
    assert shard.whole() == state


@pytest.mark.parametrize("task_id", ["a:7", "*", "ü漢", "[ab]"])
def test_only_the_very_id_is_cancelled(shard: Shard, task_id: str) -> None:
    before = shard.seed(State(delayed={task_id: NOW, "a": NOW, "b": NOW}))
    shard.run(shard.commands.cancel(task_id))
    assert shard.whole() == before.without(task_id, delayed={"a": NOW, "b": NOW}, stats={"cancelled": 1})


def test_an_index_entry_without_an_envelope_goes_too(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}, tasks={}))
    shard.run(shard.commands.cancel("a"))
    assert shard.whole() == State(stats={"cancelled": 1})
