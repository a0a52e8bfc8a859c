"""get: everything the queue knows of one task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.commands import LEASES
from delayq.protocol.results import Failures, Searching, TaskView
from delayq.protocol.results import State as In

from tests.redis.state import NOW, Shard, State, envelope, known

if TYPE_CHECKING:
    from delayq import SyncClient


def test_an_unknown_task_is_nothing(shard: Shard) -> None:
    before = shard.seed(State(delayed={"b": NOW}))
    assert shard.run(shard.commands.get("a")) is None
    assert shard.whole() == before


@pytest.mark.parametrize(
    ("state", "where", "at_ms", "failed", "token"),
    [
        (State(delayed={"a": NOW + 5}), In.SCHEDULED, NOW + 5, Failures(), None),
        (
            State(retry={"a": NOW + 5}, attempts={"a": "2 1 oh no"}),
            In.RETRYING,
            NOW + 5,
            Failures(2, 1, "", "oh no"),
            None,
        ),
        (State(processing={"b:6": 1, "a:7": NOW + 5}), In.IN_FLIGHT, NOW + 5, Failures(), 7),
        (
            State(dlq={"a": NOW - 5}, dlq_info={"a": "3 1 attempts oh no"}),
            In.DEAD,
            NOW - 5,
            Failures(3, 1, "attempts", "oh no"),
            None,
        ),
        (State(tasks={"a": b""}), In.ORPHAN, 0, Failures(), None),
    ],
    ids=["delayed", "retry", "processing", "dlq", "orphan"],
)
def test_a_task_is_found_in_any_state(
    shard: Shard, *, state: State, where: In, at_ms: int, failed: Failures, token: int | None
) -> None:
    before = shard.seed(state.but(tasks={**state.envelopes, "a": envelope(NOW - 1, {"n": 1}, {"h": "v"})}))
    assert shard.run(shard.commands.get("a")) == TaskView(
        "a", where, at_ms, NOW - 1, b'{"n":1}', "application/json", {"h": "v"}, failed, token
    )
    assert shard.whole() == before


@pytest.mark.parametrize(
    "task_id", ["a:b", "a:7", "*", "?", "[ab]", "[^a]", "\\", "a\\", "a-b", "^", "ü漢", ":"]
)
def test_any_id_is_found_in_flight_and_no_other_is_taken_for_it(shard: Shard, task_id: str) -> None:
    others = {f"{other}:9": NOW + 1 for other in ("a", "b", "ab", f"{task_id}:7", f"x{task_id}", "aa-bb")}
    shard.seed(State(processing={**others, f"{task_id}:7": NOW + 5}))
    view = shard.view(task_id)
    assert (view.state, view.at_ms, view.token) == (In.IN_FLIGHT, NOW + 5, 7)


def test_no_call_looks_at_all_of_thousands_of_leases(shard: Shard) -> None:
    """A search goes on where the last call ended. It is repeated where it found none."""
    shard.seed(State(processing={f"t{n}:{n}": NOW + n for n in range(3 * LEASES)}))
    shard.redis.hset(shard.keys.tasks, "lost", envelope())
    views = [found(shard, f"t{n}") for n in range(0, 3 * LEASES, 100)]
    assert [view.token for view, _ in views if view] == list(range(0, 3 * LEASES, 100))
    assert max(calls for _, calls in views) > 1
    view, calls = found(shard, "lost")
    assert view is not None
    assert (view.state, calls >= 6) == (In.ORPHAN, True)


def test_a_client_goes_on_with_the_search(client: SyncClient, shard: Shard) -> None:
    shard.seed(State(processing={f"t{n}:{n}": NOW + n for n in range(2 * LEASES)}))
    assert [known(client, f"t{n}").token for n in (0, 234, 999)] == [0, 234, 999]


def found(shard: Shard, task_id: str) -> tuple[TaskView | None, int]:
    """A task, and how many calls it took to find it."""
    answer: Any = shard.run(shard.commands.get(task_id))
    calls = 1
    while isinstance(answer, Searching):
        answer, calls = shard.run(answer.next), calls + 1
    return answer, calls


def test_an_envelope_that_cannot_be_read_is_shown_as_it_is(shard: Shard) -> None:
    """A dead letter that a newer delayq wrote must not hide those beside it from an export."""
    raw = b"\xf1future" + bytes(6)
    shard.seed(State(dlq={"a": NOW}, tasks={"a": raw}, dlq_info={"a": "1 0 buried x"}))
    view = shard.view("a")
    assert (view.state, view.body, view.content_type) == (In.DEAD, raw, "application/octet-stream")
