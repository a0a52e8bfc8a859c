"""cancel, reschedule, redrive and purge where test_machine.py does not get: broken indexes, hints, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.redis.state import NOW, Shard, State, envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.results import Rescheduled

LATER = NOW + 9
VERBS: dict[str, Callable[[Commands], Call[Any]]] = {
    "redriven": lambda commands: commands.redrive(0, ["a", 5, "a", 5, "b", 500]),
    "purged": lambda commands: commands.purge(0, ["a", "a", "b"]),
}


def reschedule(shard: Shard, when: str) -> Rescheduled:
    return shard.run(shard.commands.reschedule("a", when, max_delay_ms=100_000))


def test_an_orphan_counts_as_in_flight_until_the_reaper_restores_it(shard: Shard) -> None:
    before = shard.seed(State(tasks={"a": envelope()}))
    assert shard.run(shard.commands.cancel("a")) == "in_flight"
    assert reschedule(shard, "+1").outcome == "in_flight"
    assert shard.whole() == before


@pytest.mark.parametrize("index", ["delayed", "retry"])
def test_an_index_entry_without_an_envelope_is_not_rescheduled_and_goes_when_cancelled(
    shard: Shard, index: str
) -> None:
    before = shard.seed(State(tasks={}).but(**{index: {"a": NOW}}))
    assert reschedule(shard, "+1").outcome == "not_found"
    assert shard.whole() == before
    shard.run(shard.commands.cancel("a"))
    assert shard.whole() == State(stats={"cancelled": 1})


@pytest.mark.parametrize(("when", "alarm"), [("+5", 1), ("+9", 0), ("+50", 0)])
def test_the_alarm_is_set_only_when_the_next_due_time_comes_closer(
    shard: Shard, when: str, alarm: int
) -> None:
    shard.seed(State(delayed={"a": LATER, "b": NOW + 90}))
    reschedule(shard, when)
    assert shard.whole().alarm == alarm


@pytest.mark.parametrize("verb", VERBS)
def test_a_batch_of_dead_letters_may_name_one_twice_and_wakes_the_scanner(shard: Shard, verb: str) -> None:
    shard.seed(
        State(delayed={"w": LATER}, dlq={"a": NOW, "b": NOW - 1}, dlq_info=dict.fromkeys("ab", "1 0 x"))
    )
    assert shard.run(VERBS[verb](shard.commands)) == 2
    after = shard.whole()
    assert (after.stats, after.alarm) == ({verb: 2}, int(verb == "redriven"))
