"""cancel and reschedule: a task that waits, named by its id, is forgotten or falls due at another time."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Rescheduled

from tests.redis.state import NOW, Shard, State, envelope

MAX_MS = 100_000
LEFT_ALONE = {
    "unknown": (State(), "not_found"),
    "in flight": (State(processing={"a:7": NOW}), "in_flight"),
    "dead": (State(dlq={"a": NOW}, dlq_info={"a": "1 0 buried x"}), "dead"),
    # An orphan looks like a running task until the reaper restores it.
    "orphan": (State(tasks={"a": envelope()}), "in_flight"),
}
WITHOUT_ENVELOPE = [State(delayed={"a": NOW}, tasks={}), State(retry={"a": NOW}, tasks={})]


def reschedule(shard: Shard, when: str) -> Rescheduled:
    return shard.run(shard.commands.reschedule("a", when, max_delay_ms=MAX_MS))


@pytest.mark.parametrize(("state", "outcome"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_task_that_does_not_wait_is_left_alone(shard: Shard, state: State, outcome: str) -> None:
    shard.seed(state)
    assert shard.run(shard.commands.cancel("a")) == outcome
    assert reschedule(shard, "+1").outcome == outcome
    assert shard.whole() == state


@pytest.mark.parametrize("state", WITHOUT_ENVELOPE, ids=["delayed", "retry"])
def test_an_index_entry_without_an_envelope_is_not_moved_and_goes_when_cancelled(
    shard: Shard, state: State
) -> None:
    shard.seed(state)
    assert reschedule(shard, "+1").outcome == "not_found"
    assert shard.whole() == state
    shard.run(shard.commands.cancel("a"))
    assert shard.whole() == State(stats={"cancelled": 1})


@pytest.mark.parametrize("task_id", ["a:7", "*", "ü漢", "[ab]"])
def test_only_the_very_id_is_cancelled(shard: Shard, task_id: str) -> None:
    before = shard.seed(State(delayed={task_id: NOW, "a": NOW, "b": NOW}))
    shard.run(shard.commands.cancel(task_id))
    assert shard.whole() == before.without(task_id, delayed={"a": NOW, "b": NOW}, stats={"cancelled": 1})


@pytest.mark.parametrize(("when", "due_ms"), [("+500", NOW + 500), (str(NOW + 700), NOW + 700)])
def test_a_delayed_task_moves_with_its_envelope(shard: Shard, when: str, due_ms: int) -> None:
    """The due time first asked for is now this one."""
    shard.seed(
        State(delayed={"a": NOW + 9000, "b": NOW + 1}, tasks={"a": envelope(1, [2], {"h": "3"}), "b": b"x"})
    )
    assert reschedule(shard, when) == Rescheduled("rescheduled", due_ms)
    assert shard.whole() == State(
        delayed={"a": due_ms, "b": NOW + 1},
        tasks={"a": envelope(due_ms, [2], {"h": "3"}), "b": b"x"},
        stats={"rescheduled": 1},
    )


@pytest.mark.parametrize(("when", "alarm"), [("+5", 1), ("+9", 0), ("+50", 0)])
def test_the_alarm_is_set_only_when_the_next_due_time_came_closer(
    shard: Shard, when: str, alarm: int
) -> None:
    shard.seed(State(delayed={"a": NOW + 9, "b": NOW + 90}))
    reschedule(shard, when)
    assert shard.whole().alarm == alarm
