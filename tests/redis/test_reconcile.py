"""reconcile: every index is held against all others, and each task ends with one home."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from delayq.replies import Mended

from tests.redis.state import NOW, Shard, State, envelope

INDEXES = ("tasks", "delayed", "retry", "processing", "dlq", "attempts", "dlq_info")
LATER = NOW + 60_000


def page(shard: Shard, index: str, cursor: int = 0, count: int = 50) -> Mended:
    return shard.run(shard.broker.reconcile(0, index, cursor, count=count))


def sweep(shard: Shard, count: int = 50) -> list[tuple[str, str]]:
    """Every page of every index, as the reaper does it."""
    mended: list[tuple[str, str]] = []
    for index in INDEXES:
        cursor = -1
        while cursor != 0:
            found = page(shard, index, -1, count)
            mended += found.tasks
            mended += [(task_id, "adopted") for task_id in adopt(shard, found.homeless)]
            cursor = found.cursor
    return mended


def adopt(shard: Shard, ids: list[bytes]) -> list[str]:
    return [task_id.decode() for task_id in shard.run(shard.broker.adopt(0, ids))] if ids else []


def test_a_page_of_large_tasks_is_small(shard: Shard) -> None:
    """Each is read whole, though nobody asks for more than its id: a quarter of a mebibyte at a time."""
    names = [f"t{n}" for n in range(40)]
    large = envelope(LATER, "x" * 60_000)
    shard.seed(State(delayed=dict.fromkeys(names, LATER), tasks=dict.fromkeys(names, large)))
    shard.redis.hset(shard.keys.stats, "largest", len(large))
    pages, cursor = 1, page(shard, "tasks", -1).cursor
    while cursor:
        pages, cursor = pages + 1, page(shard, "tasks", -1).cursor
    assert pages >= 40 / 8


def damaged(task_id: str, present: frozenset[str]) -> State:
    """A task that is in these indexes and in no other."""
    entries: dict[str, dict[str, Any]] = {
        "tasks": {task_id: envelope()},
        "delayed": {task_id: LATER + 1},
        "retry": {task_id: LATER + 2},
        "processing": {f"{task_id}:7": LATER},
        "dlq": {task_id: NOW - 5},
        "attempts": {task_id: "1 0 x"},
        "dlq_info": {task_id: "1 0 buried x"},
    }
    return State().but(**{index: entries[index] if index in present else {} for index in INDEXES})


def home_of(present: frozenset[str]) -> str:
    """Where a task belongs that is in these indexes: a lease wins, and without any index its story tells."""
    for home in ("processing", "delayed", "retry", "dlq"):
        if home in present:
            return home
    return "dlq" if "dlq_info" in present else "retry" if "attempts" in present else "delayed"


EVERY_COMBINATION = [
    frozenset(index for index, there in zip(INDEXES, bits, strict=True) if there)
    for bits in product([False, True], repeat=len(INDEXES))
]


@pytest.mark.parametrize(
    "present", EVERY_COMBINATION, ids=lambda present: "+".join(sorted(present)) or "nothing"
)
def test_whatever_the_damage_a_task_ends_with_one_home(shard: Shard, present: frozenset[str]) -> None:
    """What has an envelope is kept, and not a byte of it changes; what has none is forgotten everywhere."""
    before = shard.seed(damaged("a:b", present))
    sweep(shard)
    after = shard.whole()
    homes = {home for home in ("delayed", "retry", "processing", "dlq") if getattr(after, home)}
    assert after.tasks == before.tasks
    if "tasks" in present:
        assert homes == {home_of(present)}
    else:
        assert homes <= {"processing"}  # until the lease runs out
        assert (after.attempts, after.dlq_info) == ({}, {})
    assert after.wake <= 1
    assert sweep(shard) == []


def test_all_damage_at_once_and_page_by_page(shard: Shard) -> None:
    """Enough ids that no index fits into one page, whatever Redis keeps it in."""
    cases = {f"id-{copy}-{n}": present for n, present in enumerate(EVERY_COMBINATION) for copy in range(5)}
    merged: dict[str, dict[str, Any]] = {index: {} for index in INDEXES}
    for task_id, present in cases.items():
        for index in present:
            merged[index] |= getattr(damaged(task_id, present), index)
    shard.seed(State().but(**merged))
    sweep(shard, count=10)
    after = shard.whole()
    running = {member.rpartition(":")[0] for member in after.processing}
    for task_id, present in cases.items():
        found = [task_id in after.delayed, task_id in after.retry, task_id in running, task_id in after.dlq]
        assert sum(found) == 1 if "tasks" in present else sum(found[:2] + found[3:]) == 0, (task_id, present)
    assert sweep(shard, count=10) == []


SOUND = State(
    delayed={"a": LATER, "b": NOW - 1},
    retry={"c": LATER},
    processing={"d:7": LATER, "e:8": NOW - 1},
    dlq={"f": NOW},
    attempts={"c": "1 0 x", "e": "0 1 "},
    dlq_info={"f": "1 0 buried x"},
    stats={"scheduled": 6},
)


def test_a_sound_queue_is_left_as_it_is(shard: Shard) -> None:
    before = shard.seed(SOUND)
    assert sweep(shard) == []
    assert shard.whole() == before


def test_an_orphan_is_adopted_and_due_now(shard: Shard) -> None:
    before = shard.seed(State(tasks={"a": envelope()}))
    assert page(shard, "tasks") == Mended(0, [], [b"a"])
    assert adopt(shard, [b"a"]) == ["a"]
    assert shard.whole() == before.but(delayed={"a": NOW}, wake=1, stats={"adopted": 1})


def test_an_orphan_that_failed_goes_on_where_it_was(shard: Shard) -> None:
    before = shard.seed(State(tasks={"a": envelope()}, attempts={"a": "2 0 x"}))
    assert adopt(shard, [b"a"]) == ["a"]
    assert shard.whole() == before.but(retry={"a": NOW}, wake=1, stats={"adopted": 1})


def test_an_orphan_that_died_stays_dead(shard: Shard) -> None:
    """Nobody asked for it to run again, so nobody is woken."""
    before = shard.seed(State(tasks={"a": envelope()}, dlq_info={"a": "3 0 attempts x"}))
    assert adopt(shard, [b"a"]) == ["a"]
    assert shard.whole() == before.but(dlq={"a": NOW}, stats={"adopted": 1})


def test_a_running_task_is_no_orphan(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:b:7": LATER}))
    assert page(shard, "tasks") == Mended(0, [], [b"a:b"])
    assert adopt(shard, [b"a:b"]) == []
    assert shard.whole() == before


def test_a_task_that_found_a_home_meanwhile_is_left_there(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": LATER}, dlq={"b": NOW}, dlq_info={"b": "1 0 buried x"}))
    assert adopt(shard, [b"a", b"b", b"gone"]) == []
    assert shard.whole() == before


def test_a_walk_goes_on_where_another_reaper_stopped(shard: Shard) -> None:
    """Reapers live a minute; only together do they get to the end of a large index."""
    shard.seed(State(delayed={f"id-{n}": NOW for n in range(1000)}))
    first = page(shard, "delayed", -1, 10)
    assert first.cursor != 0
    assert page(shard, "delayed", -1, 10).cursor != first.cursor
    while page(shard, "delayed", -1, 100).cursor != 0:
        pass
    assert page(shard, "delayed", -1, 10).cursor == first.cursor


def test_an_index_entry_without_an_envelope_is_pruned(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}, tasks={}, attempts={"a": "1 0 x"}))
    assert page(shard, "delayed") == Mended(0, [("a", "pruned")], [])
    assert shard.whole() == State(stats={"pruned": 1})


def test_a_lease_wins_over_every_other_home(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW}, retry={"a": NOW}, processing={"a:7": LATER}))
    assert page(shard, "processing") == Mended(0, [("a", "deduplicated")], [])
    assert shard.whole() == State(processing={"a:7": LATER}, stats={"deduplicated": 1})
