"""reclaim: leases that ran out are taken back; their holders crashed, hung or lost Redis."""

from __future__ import annotations

import pytest

from tests.redis.state import NOW, Shard, State, envelope


def reclaim(shard: Shard, *, max_crashes: int = 3, limit: int = 100) -> list[tuple[str, str]]:
    return shard.run(shard.commands.reclaim(0, max_crashes=max_crashes, limit=limit))


def test_a_lease_that_ran_out_after_the_question_was_asked_is_left_alone(shard: Shard) -> None:
    """Redis hung before it executed this; no worker could extend a lease meanwhile."""
    shard.seed(State(processing={"a:7": NOW - 30_000, "b:8": NOW - 29_999}, tasks={"a": b"", "b": b""}))
    call = shard.commands.reclaim(0, max_crashes=9, before_ms=NOW - 30_000)
    assert shard.run(call) == [("a:7", "reclaimed")]


def test_a_task_whose_lease_expired_becomes_a_suspect(shard: Shard) -> None:
    """Up to and including this millisecond, the longest ago first, once, whoever asks again; failures do not count."""
    leases = {"a:7": NOW, "ü漢:1:8": NOW - 5, "c:9": NOW + 1}
    before = shard.seed(State(processing=leases, attempts={"a": "99 0 boom"}))
    for member in ("ü漢:1:8", "a:7"):
        assert reclaim(shard, max_crashes=2, limit=1) == [(member, "reclaimed")]
    assert reclaim(shard) == []
    assert shard.whole() == before.but(
        processing={"c:9": NOW + 1},
        suspect={"a": 7, "ü漢:1": 8},
        attempts={"a": "99 1 boom", "ü漢:1": "0 1 "},
        wake=1,
        stats={"reclaimed": 2},
    )


@pytest.mark.parametrize(("alone", "outcome"), [(0, "reclaimed"), (1, "reclaimed"), (2, "buried")])
def test_the_last_of_max_crashes_alone_buries(shard: Shard, alone: int, outcome: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW}, attempts={"a": f"5 8 ~{alone}:7:1 boom"}))
    assert reclaim(shard, max_crashes=3) == [("a:7", outcome)]
    if outcome == "buried":
        expected = before.but(
            processing={},
            attempts={},
            dlq={"a": NOW},
            dlq_info={"a": "5 9 crashes boom"},
            stats={"buried": 1},
        )
    else:
        entry = {"a": f"5 9 ~{alone + 1}:7:1 boom"}
        expected = before.but(processing={}, attempts=entry, suspect={"a": 7}, wake=1, stats={"reclaimed": 1})
    assert shard.whole() == expected


@pytest.mark.parametrize(
    "mark",
    ["", "~2:0:0 ", "~2:6:1 ", "~2:8:1 ", "~2:7:2 ", "~2:5:4 "],
    ids=["unmarked", "failed_since", "an_earlier_run", "a_later_run", "with_another", "with_others"],
)
def test_a_crash_in_company_is_not_charged_to_the_task(shard: Shard, mark: str) -> None:
    """However many there were: only a run alone, under this very lease, tells whose fault it was."""
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": f"0 99 {mark}boom"}))
    assert reclaim(shard, max_crashes=3) == [("a:7", "reclaimed")]


@pytest.mark.parametrize("member", ["a", ":", "a:7x", "a:7"])
def test_a_lease_without_a_token_or_an_envelope_is_dropped_and_holds_nobody_up(
    shard: Shard, member: str
) -> None:
    shard.seed(State(processing={member: NOW - 1, "b:8": NOW}, tasks={"b": envelope()}))
    assert reclaim(shard) == [(member, "orphans"), ("b:8", "reclaimed")]
    assert shard.whole() == State(
        suspect={"b": 8}, attempts={"b": "0 1 "}, wake=1, stats={"orphans": 1, "reclaimed": 1}
    )
