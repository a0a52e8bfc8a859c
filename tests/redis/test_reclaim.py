"""reclaim: leases that ran out are taken back; their holders crashed, hung or lost Redis."""

from __future__ import annotations

import pytest

from tests.redis.state import NOW, Shard, State


def reclaim(shard: Shard, *, max_crashes: int = 3, limit: int = 100) -> list[tuple[str, str]]:
    return shard.run(shard.broker.reclaim(0, max_crashes=max_crashes, limit=limit))


def test_an_expired_lease_becomes_a_retry_due_now(shard: Shard) -> None:
    """Expired is up to and including this millisecond; a lease that lasts is left alone."""
    before = shard.seed(State(processing={"a:7": NOW - 5, "b:8": NOW, "c:9": NOW + 1}))
    assert reclaim(shard) == [("a:7", "reclaimed"), ("b:8", "reclaimed")]
    assert shard.whole() == before.but(
        processing={"c:9": NOW + 1},
        retry={"a": NOW, "b": NOW},
        attempts={"a": "0 1 ", "b": "0 1 "},
        wake=1,
        stats={"reclaimed": 2},
    )


def test_nothing_expired_writes_nothing(shard: Shard) -> None:
    before = shard.seed(State(processing={"c:9": NOW + 1}))
    assert reclaim(shard) == []
    assert shard.whole() == before


@pytest.mark.parametrize(("crashed", "outcome"), [(0, "reclaimed"), (1, "reclaimed"), (2, "buried")])
def test_the_last_of_max_crashes_buries(shard: Shard, crashed: int, outcome: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW}, attempts={"a": f"5 {crashed} boom"}))
    assert reclaim(shard, max_crashes=3) == [("a:7", outcome)]
    if outcome == "buried":
        expected = before.but(
            processing={},
            attempts={},
            dlq={"a": NOW},
            dlq_info={"a": "5 3 crashes boom"},
            stats={"buried": 1},
        )
    else:
        entry = {"a": f"5 {crashed + 1} boom"}
        expected = before.but(processing={}, attempts=entry, retry={"a": NOW}, wake=1, stats={"reclaimed": 1})
    assert shard.whole() == expected


def test_failures_do_not_count_as_crashes(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": "99 0 boom"}))
    assert reclaim(shard, max_crashes=2) == [("a:7", "reclaimed")]


def test_the_longest_expired_go_first_and_a_call_is_bounded(shard: Shard) -> None:
    shard.seed(State(processing={f"t{n}:7": NOW - n for n in range(10)}))
    assert [member for member, _ in reclaim(shard, limit=3)] == ["t9:7", "t8:7", "t7:7"]
    assert len(shard.whole().processing) == 7


def test_a_lease_without_an_envelope_is_dropped(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}, tasks={}))
    assert reclaim(shard) == [("a:7", "orphans")]
    assert shard.whole() == State(stats={"orphans": 1})


@pytest.mark.parametrize("member", ["a", ":", "a:7x"])
def test_a_lease_without_a_token_is_dropped_and_holds_nobody_up(shard: Shard, member: str) -> None:
    shard.seed(State(processing={member: NOW - 1, "b:7": NOW}))
    assert reclaim(shard) == [(member, "orphans"), ("b:7", "reclaimed")]


def test_taking_back_twice_charges_one_crash(shard: Shard) -> None:
    """Any number of scanners and reapers may sweep at once."""
    shard.seed(State(processing={"a:7": NOW}))
    reclaim(shard)
    after = shard.whole()
    assert reclaim(shard) == []
    assert shard.whole() == after


@pytest.mark.parametrize("task_id", ["a:b", "7:7", "ü漢", ":"])
def test_ids_may_hold_colons(shard: Shard, task_id: str) -> None:
    shard.seed(State(processing={f"{task_id}:7": NOW}))
    reclaim(shard)
    assert shard.whole().retry == {task_id: NOW}
