"""reschedule: the due time of a waiting task moves."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Rescheduled

from tests.redis.state import NOW, Shard, State, envelope

MAX_MS = 100_000


def reschedule(shard: Shard, when: str) -> Rescheduled:
    return shard.run(shard.commands.reschedule("a", when, max_delay_ms=MAX_MS))


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


def test_a_retry_moves_and_remembers_when_it_was_scheduled_for(shard: Shard) -> None:
    before = shard.seed(State(retry={"a": NOW + 9000}, attempts={"a": "1 0 x"}))
    reschedule(shard, "+500")
    entry = {"a": f"1 0 @{NOW + 500} x"}
    assert shard.whole() == before.but(
        retry={"a": NOW + 500}, attempts=entry, alarm=1, stats={"rescheduled": 1}
    )


@pytest.mark.parametrize("when", ["0", str(NOW - 1)])
def test_the_past_is_clamped_to_now_and_counted(shard: Shard, when: str) -> None:
    shard.seed(State(delayed={"a": NOW + 9000}))
    assert reschedule(shard, when) == Rescheduled("rescheduled", NOW)
    assert shard.whole() == State(delayed={"a": NOW}, wake=1, stats={"rescheduled": 1, "clamped": 1})


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State(), "not_found"),
        (State(processing={"a:7": NOW}), "in_flight"),
        (State(dlq={"a": NOW}), "dead"),
        (State(tasks={"a": envelope()}), "in_flight"),
        (State(delayed={"a": NOW}, tasks={}), "not_found"),
        (State(retry={"a": NOW}, tasks={}), "not_found"),
    ],
    ids=["unknown", "in flight", "dead", "orphan", "no envelope", "retry without envelope"],
)
def test_anything_else_is_left_alone(shard: Shard, state: State, outcome: str) -> None:
    shard.seed(state)
    assert reschedule(shard, "+1").outcome == outcome
    assert shard.whole() == state


@pytest.mark.parametrize("when", [f"+{MAX_MS + 1}", str(NOW + MAX_MS + 1)])
def test_too_far_ahead_is_refused_and_leaves_all_as_it_was(shard: Shard, when: str) -> None:
    before = shard.seed(State(delayed={"a": NOW}))
    assert reschedule(shard, when).outcome == "too_far"
    assert shard.whole() == before


@pytest.mark.parametrize(("when", "alarm"), [("+5", 1), ("+9", 0), ("+50", 0)])
def test_the_alarm_is_set_only_when_the_next_due_time_came_closer(
    shard: Shard, when: str, alarm: int
) -> None:
    shard.seed(State(delayed={"a": NOW + 9, "b": NOW + 90}))
    reschedule(shard, when)
    assert shard.whole().alarm == alarm
