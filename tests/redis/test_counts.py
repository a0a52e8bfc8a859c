"""counts: how many tasks are in each state, and what falls due when."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Counts

from tests.redis.state import NOW, TOKEN, Shard, State, envelope


def test_every_state_is_counted_and_nothing_is_changed(shard: Shard) -> None:
    before = shard.seed(
        State(
            delayed={"a": NOW - 9, "b": NOW, "c": NOW + 1, "d": NOW + 1000, "e": NOW + 1001},
            retry={"f": NOW - 10, "g": NOW + 500},
            processing={"h:7": NOW, "l:8": NOW + 1, "m:9": NOW - 1, "n:1": -(NOW + 5000), "o:1": -(NOW - 1)},
            dlq={"i": NOW, "j": NOW, "k": NOW},
            stats={"acked": 5, "token": TOKEN},
        )
    )
    counts = shard.run(shard.commands.counts(0, [1, 1000, 2000], [NOW - 1, NOW + 500, NOW + 1000]))
    assert counts == Counts(
        now_ms=NOW,
        scheduled=3,
        retrying=1,
        due=3,
        in_flight=5,
        lapsed=4,
        dead=3,
        oldest_due_ms=NOW - 10,
        next_due_ms=NOW + 1,
        due_within={1: 1, 1000: 3, 2000: 4},
        due_by={NOW - 1: 0, NOW + 500: 2, NOW + 1000: 3},
        stats={"acked": 5},
        bytes=15 * (1 + len(envelope())),
    )
    assert (counts.waiting, counts.late_ms) == (7, 10)
    assert shard.whole() == before


@pytest.mark.parametrize("retry", [{}, {"a": NOW + 5}], ids=["empty", "future"])
def test_a_queue_in_which_nothing_is_due_is_not_late(shard: Shard, retry: dict[str, int]) -> None:
    before = shard.seed(State(retry=retry))
    counts = shard.run(shard.commands.counts(0))
    next_due_ms = retry.get("a")
    assert (counts.oldest_due_ms, counts.next_due_ms, counts.late_ms) == (next_due_ms, next_due_ms, 0)
    assert shard.whole() == before
