"""Parked tasks: those whose kind or version no worker knew. They are no demand, and every call by ID finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract import Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import Further, encode, with_fields
from delayq.protocol.results import Cancelled, LostTask, Outcome, ParkedKind, Settled
from delayq.protocol.results import State as In
from delayq.reaper.reaper import INDEXES

from tests.redis.commands import answer, on
from tests.redis.state import NOW, PLENTY, State

if TYPE_CHECKING:
    from tests.redis.state import Shard


def of_kind(kind: str, version: int = 1, due_ms: int = NOW) -> bytes:
    return with_fields(encode(None, None, None)[0], Further(kind, version)) + due_ms.to_bytes(6, "big")


def member(task_id: str, kind: str = "push", version: int = 1, due_ms: int = NOW) -> str:
    return f"{kind} {version:05d} {due_ms:015d} {task_id}"


def park(shard: Shard, *members: str | bytes, commands: Commands | None = None) -> list[Settled]:
    """Park tasks that were due now."""
    flat = [item for each in members for item in (each, "")]
    return shard.run((commands or shard.commands).park(0, flat))


URL = {"url": "http://127.0.0.1:1/"}
PUSH = of_kind("push")
ONE = State(parked={member("a"): 0}, tasks={"a": PUSH})
RETRIED = ONE.but(
    parked={member("a", due_ms=NOW + 9): 0}, attempts={"a": f"1 0 @{NOW + 9} no"}, tasks={"a": PUSH}
)


def test_a_repair_leaves_parked_tasks_alone_and_parking_never_doubles_a_task(shard: Shard) -> None:
    stale = {member("gone"): 0, member("a", due_ms=5): 0, member("b", "pus"): 0, "garbage": 0}
    twice = {member("queued"): 0, member("dead"): 0, member("leased"): 0}
    tasks = dict.fromkeys(["a", "b", "queued", "dead", "leased"], PUSH)
    shard.seed(
        State(
            parked={member("a"): 0, member("b"): 0, **stale, **twice},
            tasks=tasks,
            delayed={"queued": NOW},
            dlq={"dead": NOW},
            dlq_info={"dead": "1 0 buried no"},
            processing={"leased:1": NOW + 9},
        )
    )
    homeless = set[bytes]()
    for _ in range(2):
        homeless = set()
        for index in INDEXES:
            homeless |= set(shard.run(shard.commands.reconcile(0, index, 0, count=100)).homeless)
    after = shard.whole()
    assert after.parked == {member("a"): 0, member("b"): 0}
    assert (after.delayed, after.dlq, after.processing) == (
        {"queued": NOW},
        {"dead": NOW},
        {"leased:1": NOW + 9},
    )
    assert homeless == {b"leased"}


def test_a_parked_task_that_lost_its_index_is_restored_and_one_that_has_it_is_not(shard: Shard) -> None:
    before = shard.seed(ONE.but(tasks={"a": PUSH, "lost": PUSH}))
    lost = [LostTask(b"a"), LostTask(b"lost")]
    found = shard.run(shard.commands.restore_orphans(0, lost))
    assert found.ids == [b"lost"]
    assert shard.whole() == before.but(delayed={"lost": NOW}, wake=1, stats={"adopted": 1})


def test_a_parked_task_migrates_as_one_that_waits(shard: Shard) -> None:
    shard.seed(RETRIED)
    shard.redis.delete(shard.keys.shard_map)
    batch = shard.run(shard.commands.migrate_out(0, [b"a"], near_ms=0))
    [task] = batch.tasks
    assert task.arguments[:3] == (b"a", b"retry", str(NOW + 9).encode())
    assert shard.whole().parked == {}


def test_a_task_that_was_leased_unseen_between_two_parkings_is_not_restored(shard: Shard) -> None:
    """A search for orphans reads leases page by page: a task may be parked and leased again between two pages."""
    leases = {f"t{n}:{n + 1}": NOW + 60_000 for n in range(3000)}
    shard.seed(State(processing=leases, tasks={f"t{n}": PUSH for n in range(3000)}))
    shard.redis.hset(shard.keys.stats, "token", 10_000)
    lost = [LostTask(b"t%d" % n) for n in range(200)]
    found = shard.run(shard.commands.restore_orphans(0, lost))
    # Those that were not on the first page get leases that may be on it: a page is a part of the hash values.
    park(shard, *(b"%b:%d" % (each.id, int(each.id[1:]) + 1) for each in found.left))
    shard.run(shard.commands.unpark(0, [("push", 1)]))
    assert len(shard.run(shard.commands.claim(0, 200, 60_000)).leases) == len(found.left) > 20
    restored = list[bytes]()
    while found.cursor != "0":
        found = shard.run(shard.commands.restore_orphans(0, found.left, found.cursor))
        restored += found.ids
    assert restored == []


@pytest.mark.parametrize(
    ("was_due_ms", "attempts", "due_ms"),
    [
        (NOW + 5, {}, NOW + 5),
        (NOW + 5, {"a": "1 0 no"}, NOW + 5),
        (NOW, {"a": f"1 0 @{NOW + 9} no"}, NOW + 9),
    ],
)
def test_a_task_is_parked_with_its_last_due_time(
    shard: Shard, was_due_ms: int, attempts: dict[str, str], due_ms: int
) -> None:
    """That of the next attempt is in `attempts`."""
    task = of_kind("push", due_ms=was_due_ms)
    shard.seed(State(processing={"a:1": NOW + 9}, tasks={"a": task}, attempts=attempts))
    assert park(shard, "a:1") == [Settled.PARKED]
    after = shard.whole()
    assert (after.parked, after.attempts) == ({member("a", due_ms=due_ms): 0}, attempts)


@pytest.mark.parametrize(
    ("entry", "due_ms", "wake", "alarm"),
    [("1 0 no", NOW, 1, 0), ("1 0 no", NOW + 60_000, 0, 1), ("0 1 ~0:5:1 ", NOW, 1, 0)],
    ids=["due", "due later", "suspect"],
)
def test_what_is_returned_wakes_a_worker_or_the_scanner(
    shard: Shard, *, entry: str, due_ms: int, wake: int, alarm: int
) -> None:
    shard.seed(State(parked={member("a", due_ms=due_ms): 0}, attempts={"a": entry}))
    assert shard.run(shard.commands.unpark(0, [("pus", None), ("push", 2)])) == (0, 1)
    assert shard.run(shard.commands.unpark(0, [("push", None)])) == (1, 0)
    after = shard.whole()
    assert (after.parked, after.wake, after.alarm) == ({}, wake, alarm)


def test_parked_tasks_take_no_start_of_the_rate(shard: Shard) -> None:
    limited = Commands(shard.commands.queue, limits=Limits(rate_per_second=5, burst=10))
    shard.seed(State(delayed=dict.fromkeys("abcdefgh", NOW), tasks=dict.fromkeys("abcdefgh", PUSH)))
    leases = shard.run(limited.claim(0, 8, 1000)).leases
    assert shard.redis.exists(shard.keys.rate)
    members = [lease.member for lease in leases]
    park(shard, *members[:3], commands=limited)
    assert int(shard.redis.get(shard.keys.rate) or 0) == NOW * 1000 + 5 * 200_000
    park(shard, *members[3:], commands=limited)
    assert not shard.redis.exists(shard.keys.rate)


@pytest.mark.parametrize("before", [ONE, RETRIED], ids=["new", "retried"])
def test_every_call_by_id_finds_a_parked_task(shard: Shard, before: State) -> None:
    due_ms = int(next(iter(before.parked)).split()[2])
    shard.seed(before)
    view = shard.run(shard.commands.get("a"))
    assert view is not None
    assert (view.state, view.at_ms, view.kind, view.kind_version) == (In.PARKED, due_ms, "push", 1)
    [row] = shard.run(shard.commands.list(0, In.PARKED, limit=9)).rows.values()
    assert (row.id, row.at_ms, row.size) == ("a", due_ms, len(PUSH))
    stored = shard.run(
        shard.commands.schedule(0, ["a", "+5", b"\x11{}"], if_exists="keep", repeated=0, **PLENTY)
    )
    assert stored.notes == {0: Outcome.KEPT}
    assert shard.whole() == before
    assert shard.run(shard.commands.cancel("a")) is Cancelled.CANCELLED
    assert shard.whole() == State(stats={"cancelled": 1})


def test_a_follow_up_replaces_a_task_that_would_be_parked(shard: Shard) -> None:
    """The task has not begun, and could not: `replace` means the follow-up."""
    follow_up = of_kind("known", due_ms=NOW + 9)
    shard.seed(State(processing={"a:1": NOW + 9}, tasks={"a": PUSH}, followups={"a": follow_up}))
    assert park(shard, "a:1") == [Settled.PARKED]
    after = shard.whole()
    assert (after.delayed, after.parked, after.followups) == ({"a": NOW + 9}, {}, {})
    assert after.envelopes == {"a": follow_up}


def test_a_suspect_is_one_again_after_parking(shard: Shard) -> None:
    """Its crash must not make suspects of others."""
    shard.seed(State(suspect={"a": 5}, tasks={"a": PUSH}, attempts={"a": "0 1 "}))
    [lease] = shard.run(shard.commands.isolate(0, 1, 1000)).leases
    park(shard, lease.member)
    shard.run(shard.commands.unpark(0, [("push", 1)]))
    after = shard.whole()
    assert (list(after.suspect), after.retry, after.delayed, after.wake) == (["a"], {}, {}, 1)


def test_a_key_of_another_type_takes_no_task_out_of_its_lease(shard: Shard) -> None:
    shard.seed(State(processing={"a:1": NOW + 9}, tasks={"a": PUSH}))
    shard.redis.set(shard.keys.parked, "not a zset")
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        park(shard, "a:1")
    assert shard.redis.zcard(shard.keys.processing) == 1
    shard.redis.delete(shard.keys.parked)


def test_bytes_of_another_program_do_not_stop_the_others(shard: Shard) -> None:
    foreign = b"\x21\x01\x03a b\x00\x01{}" + NOW.to_bytes(6, "big")
    shard.seed(State(processing={"x:1": NOW + 9, "a:2": NOW + 9}, tasks={"x": foreign, "a": PUSH}))
    park(shard, "x:1", "a:2")
    assert shard.whole().parked == {member("a"): 0, member("x", "-", 0): 0}
    assert shard.run(shard.commands.unpark(0, None)) == (2, 0)


def some_kinds() -> State:
    """Four kinds and versions, one of which begins as another."""
    members = [
        *(member("a", due_ms=NOW + 2), member("b", due_ms=NOW - 3)),
        *(member("c", version=2), member("d", "pushy"), member("e", "-", 0)),
    ]
    return State(parked=dict.fromkeys(members, 0))


def test_parked_tasks_are_counted_by_kind_and_version_in_a_bounded_call(shard: Shard) -> None:
    assert shard.run(shard.commands.parked(0)) == []
    before = shard.seed(some_kinds())
    kinds = [
        *(ParkedKind("", 0, 1, NOW), ParkedKind("push", 1, 2, NOW - 3), ParkedKind("push", 2, 1, NOW)),
        ParkedKind("pushy", 1, 1, NOW),
    ]
    assert shard.run(shard.commands.parked(0)) == kinds
    assert shard.run(shard.commands.parked(0, limit=3)) == kinds[:3]
    assert shard.whole() == before
    shard.redis.zadd(shard.keys.parked, {"broken": 0})  # by another program
    assert shard.run(shard.commands.parked(0)) == kinds


def test_status_names_kinds_of_parked_tasks(orders: Shard) -> None:
    orders.seed(some_kinds())
    shown = on(orders, "status", "orders").stderr
    said = "! 5 parked: no worker knew their kind or version: push 1 (2, the oldest due for 3ms), without a kind (1), "
    assert said in shown
    found = answer(orders, "status", "orders")["parked_kinds"]
    assert [(each["kind"], each["kind_version"], each["count"]) for each in found] == [
        *(("push", 1, 2), ("", 0, 1), ("push", 2, 1), ("pushy", 1, 1)),
    ]
    assert found[0]["oldest_due_ms"] == NOW - 3
