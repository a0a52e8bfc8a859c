"""list: one page of the tasks in a state, by score."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Failures, TaskRow
from delayq.protocol.results import State as In

from tests.redis.state import NOW, Shard, State, envelope

SIZE = len(envelope())


def rows(shard: Shard, state: In, offset: int = 0, limit: int = 10) -> list[TaskRow]:
    return shard.run(shard.commands.list(0, state, offset=offset, limit=limit))


@pytest.mark.parametrize(
    ("state", "content", "failed"),
    [
        (In.SCHEDULED, State(delayed={"b": NOW, "a": NOW + 1}), Failures()),
        (
            In.RETRYING,
            State(retry={"b": NOW, "a": NOW + 1}, attempts={"b": "2 1 no"}),
            Failures(2, 1, "", "no"),
        ),
        (In.IN_FLIGHT, State(processing={"b:7": NOW, "a:8": NOW + 1}), Failures()),
        (
            In.DEAD,
            State(dlq={"b": NOW, "a": NOW + 1}, dlq_info={"b": "2 1 crashes no"}),
            Failures(2, 1, "crashes", "no"),
        ),
    ],
    ids=["delayed", "retry", "processing", "dlq"],
)
def test_every_state_is_listed_in_the_order_of_its_times(
    shard: Shard, *, state: In, content: State, failed: Failures
) -> None:
    before = shard.seed(content)
    assert rows(shard, state) == [
        TaskRow("b", state, NOW, SIZE, failed),
        TaskRow("a", state, NOW + 1, SIZE, Failures()),
    ]
    assert shard.whole() == before


def test_pages_cover_all_and_nothing_twice(shard: Shard) -> None:
    shard.seed(State(delayed={f"t{n:03}": NOW + n for n in range(25)}))
    pages = [rows(shard, In.SCHEDULED, offset, 10) for offset in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert [row.id for page in pages for row in page] == [f"t{n:03}" for n in range(25)]


def test_an_entry_without_an_envelope_shows_as_zero_bytes(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}, tasks={}))
    assert rows(shard, In.SCHEDULED) == [TaskRow("a", In.SCHEDULED, NOW, 0, Failures())]
