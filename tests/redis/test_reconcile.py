"""reconcile: each index is compared with all others, and each task ends in one of them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.commands import LEASES
from delayq.protocol.replies import ReconciledPage
from delayq.protocol.results import LostTask

from tests.redis.state import NOW, PLENTY, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.protocol.scripts import Argument

INDEXES = ("tasks", "delayed", "retry", "suspect", "processing", "dlq", "attempts", "dlq_info")
LATER = NOW + 60_000


def page(shard: Shard, index: str, cursor: int = 0, count: int = 50) -> ReconciledPage:
    return shard.run(shard.commands.reconcile(0, index, cursor, count=count))


def sweep(shard: Shard, count: int = 50) -> list[tuple[str, str]]:
    """Every page of every index, as the reaper does it."""
    repaired: list[tuple[str, str]] = []
    for index in INDEXES:
        cursor = -1
        while cursor != 0:
            found = page(shard, index, -1, count)
            repaired += found.tasks
            repaired += [(task_id, "adopted") for task_id in adopt(shard, found.homeless)]
            cursor = found.cursor
    return repaired


def adopt(shard: Shard, ids: list[bytes]) -> list[str]:
    found = shard.run(shard.commands.restore_orphans(0, list(map(LostTask, ids))))
    assert (found.cursor, found.left) == ("0", []), "few leases are one page"
    return [task_id.decode() for task_id in found.ids]


def test_a_page_of_large_tasks_is_small(shard: Shard) -> None:
    """A scan reads whole envelopes, though it returns only IDs: at most a quarter of a mebibyte at a time."""
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
        "suspect": {task_id: 7},
        "processing": {f"{task_id}:7": LATER},
        "dlq": {task_id: NOW - 5},
        "attempts": {task_id: "1 0 x"},
        "dlq_info": {task_id: "1 0 buried x"},
    }
    return State().but(**{index: entries[index] if index in present else {} for index in INDEXES})


def home_of(present: frozenset[str]) -> str:
    """Where a task belongs that is in these indexes: a lease wins, and without any index its story tells.

    Of delayed and retry, the one in which it is due later: here that is retry. A suspect would run before that.
    """
    for home in ("processing", "retry", "delayed", "dlq", "suspect"):
        if home in present:
            return home
    return "dlq" if "dlq_info" in present else "retry" if "attempts" in present else "delayed"


EVERY_COMBINATION = [
    frozenset(index for index, there in zip(INDEXES, bits, strict=True) if there)
    for bits in product([False, True], repeat=len(INDEXES))
]


def test_after_any_damage_each_task_is_in_one_index(shard: Shard) -> None:
    """What has an envelope is kept, and not a byte of it changes; what has none is forgotten, once its lease expired.

    Page by page: enough ids that no index fits into one page, in any encoding of Redis.
    """
    cases = {f"id-{copy}-{n}": present for n, present in enumerate(EVERY_COMBINATION) for copy in range(2)}
    merged: dict[str, dict[str, Any]] = {index: {} for index in INDEXES}
    for task_id, present in cases.items():
        for index in present:
            merged[index] |= getattr(damaged(task_id, present), index)
    before = shard.seed(State().but(**merged))
    sweep(shard, count=10)
    after = shard.whole()
    assert after.tasks == before.tasks
    assert after.wake <= 1
    assert {*after.attempts, *after.dlq_info} <= before.envelopes.keys()
    running = {member.rpartition(":")[0] for member in after.processing}
    homes = {name: getattr(after, name) for name in ("delayed", "retry", "suspect", "dlq")}
    for task_id, present in cases.items():
        found = [name for name, held in (homes | {"processing": running}).items() if task_id in held]
        assert (found == [home_of(present)]) if "tasks" in present else not {*found} - {"processing"}, present
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
    """Also by who looks for a home for tasks that have one, or a lease, or are gone."""
    before = shard.seed(SOUND)
    assert page(shard, "tasks").homeless == [b"d", b"e"], "only the search among leases finds them"
    assert sweep(shard) == []
    assert adopt(shard, [b"a", b"c", b"d", b"f", b"gone"]) == []
    assert shard.whole() == before


@pytest.mark.parametrize(
    ("due_ms", "entry", "changes"),
    [
        (NOW - 1, "", {"delayed": {"a": NOW}, "wake": 1}),
        (LATER, "", {"delayed": {"a": LATER}, "alarm": 1}),
        (
            NOW - 9,
            "2 0 x",
            {"retry": {"a": NOW}, "wake": 1},
        ),  # as before due times were kept, or without delay
        (NOW - 9, f"2 0 @{NOW - 1} x", {"retry": {"a": NOW}, "wake": 1}),
        (NOW - 9, f"2 0 @{LATER} x", {"retry": {"a": LATER}, "alarm": 1}),
        (NOW - 9, f"2 0 @{LATER}", {"retry": {"a": NOW}, "wake": 1}),  # an error of that text
        (NOW - 9, f"2 0 @{1 << 44} x", {"retry": {"a": NOW}, "wake": 1}),  # no due time of ours
        (NOW - 9, "dead", {"dlq": {"a": NOW}}),  # it must not run again, so no worker is woken
    ],
)
def test_an_orphan_is_due_when_it_was_and_not_before(
    shard: Shard, due_ms: int, entry: str, changes: dict[str, Any]
) -> None:
    """After a failure it waits for the rest of its backoff. A worker is woken only for what is due."""
    index = "dlq_info" if entry == "dead" else "attempts"
    entry = "3 0 attempts x" if entry == "dead" else entry
    before = shard.seed(State(tasks={"a": envelope(due_ms)}).but(**{index: {"a": entry} if entry else {}}))
    assert page(shard, "tasks") == ReconciledPage(0, [], [b"a"])
    assert adopt(shard, [b"a"]) == ["a"]
    assert shard.whole() == before.but(**changes, stats={"adopted": 1})


@pytest.mark.parametrize(
    ("found", "index", "repair"),
    [
        (State(delayed={"a": NOW}, tasks={}, attempts={"a": "1 0 x"}), "delayed", "pruned"),
        (
            State(delayed={"a": NOW}, retry={"a": NOW}, processing={"a:7": LATER}),
            "processing",
            "deduplicated",
        ),
    ],
    ids=["no envelope", "a lease and other homes"],
)
def test_each_repair_is_returned_and_counted(shard: Shard, found: State, index: str, repair: str) -> None:
    shard.seed(found)
    assert page(shard, index) == ReconciledPage(0, [("a", repair)], [])
    assert shard.whole() == State(processing=found.processing, stats={repair: 1})


@pytest.mark.parametrize("index", ["delayed", "retry"])
def test_no_task_is_due_before_its_time_though_a_whole_index_was_lost(shard: Shard, index: str) -> None:
    """Whichever verb put it there: schedule, reschedule, retry, reschedule of a retry, redrive."""
    commands, ids = shard.commands, [b"new", b"moved", b"failed", b"put-off", b"redriven"]
    delays = {"new": 60_000, "moved": 1, "failed": 0, "put-off": 0, "redriven": 0}
    flat: list[Argument] = [item for name, ms in delays.items() for item in (name, f"+{ms}", envelope()[:-6])]
    shard.run(commands.schedule(0, flat, if_exists="keep", repeated=0, **PLENTY))
    shard.run(commands.reschedule("moved", "+70000", max_delay_ms=100_000))
    leases = {lease.task.id: lease.member for lease in shard.run(commands.claim(0, 9, 1000)).leases}
    failures = [item for name in ("failed", "put-off") for item in (leases[name], 80_000, 1, "boom")]
    shard.run(commands.retry(0, failures, max_attempts=3))
    shard.run(commands.reschedule("put-off", "+90000", max_delay_ms=100_000))
    shard.run(commands.bury(0, [leases["redriven"], "boom"]))
    shard.run(commands.redrive(0, ["redriven", 50_000]))
    before = shard.whole()
    dues = {**before.delayed, **before.retry}
    assert {due - NOW for due in dues.values()} == {50_000, 60_000, 70_000, 80_000, 90_000}
    shard.redis.delete(getattr(shard.keys, index))
    adopt(shard, ids)
    after = shard.whole()
    assert {**after.delayed, **after.retry} == dues


def leases_of(count: int) -> State:
    return State(processing={f"t{n}:{n}": LATER for n in range(count)})


def test_no_call_looks_at_all_leases(shard: Shard) -> None:
    before = shard.seed(leases_of(3 * LEASES))
    shard.redis.hset(shard.keys.tasks, "lost", envelope(LATER))
    found, calls = shard.run(shard.commands.restore_orphans(0, [LostTask(b"lost")])), 1
    while found.left:
        assert found.ids == []
        found, calls = shard.run(shard.commands.restore_orphans(0, found.left, found.cursor)), calls + 1
    assert (found.ids, calls > 2) == ([b"lost"], True)
    assert shard.redis.zscore(shard.keys.delayed, "lost") == LATER
    assert shard.redis.zcard(shard.keys.processing) == len(before.processing)


@pytest.mark.parametrize("settle", ["release", "retry"])
def test_a_task_that_changes_leases_while_they_are_looked_at_is_no_orphan(shard: Shard, settle: str) -> None:
    """Its new lease may be on a page already searched, and its old one on a page that is not."""
    shard.seed(leases_of(3 * LEASES))
    ids = [f"t{n}" for n in range(3 * LEASES)]
    found = shard.run(
        shard.commands.restore_orphans(0, [LostTask(task_id.encode()) for task_id in ids[:200]])
    )
    members = [b"%b:%b" % (each.id, each.id[1:]) for each in found.left]
    if settle == "release":
        shard.run(shard.commands.release(0, [item for member in members for item in (member, NOW)]))
    else:
        flat = [item for member in members for item in (member, 0, 0, "again")]
        shard.run(shard.commands.retry(0, flat, max_attempts=3))
    assert len(shard.run(shard.commands.claim(0, 250, 60_000)).leases) == len(members) > 50
    while found.left:
        found = shard.run(shard.commands.restore_orphans(0, found.left, found.cursor))
        assert found.ids == []
    assert (shard.whole().delayed, shard.whole().retry) == ({}, {})


def test_a_walk_goes_on_where_another_reaper_stopped(shard: Shard) -> None:
    """Reapers live a minute; only together do they get to the end of a large index."""
    shard.seed(State(delayed={f"id-{n}": NOW for n in range(1000)}))
    first = page(shard, "delayed", -1, 10)
    assert first.cursor != 0
    assert page(shard, "delayed", -1, 10).cursor != first.cursor
    while page(shard, "delayed", -1, 100).cursor != 0:
        pass
    assert page(shard, "delayed", -1, 10).cursor == first.cursor
