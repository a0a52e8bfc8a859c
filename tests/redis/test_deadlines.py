"""Deadlines: no task is claimed after its own, claims and scanners end what is late, at no cost for other tasks.

Every verb with deadlines is in test_machine.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.client.encoding import NewTask, TaskEncoder
from delayq.contract import Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import BATCH, EXAMINE_AGAIN_MS, Commands
from delayq.protocol.envelope import Further, encode, with_fields
from delayq.protocol.results import LostTask, MigratingTask, Outcome
from delayq.protocol.shard_map import ShardMap
from delayq.scanner.scanner import ShardScanner

from tests.redis.state import NOW, Shard, State
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection

LEASE_MS = 60_000
MISSED = "0 0 expired missed its deadline"


def within(deadline_ms: int | None, due_ms: int = NOW, kind: str = "") -> bytes:
    """The envelope of a task that may start until so long after its due time."""
    further = Further(kind, 1 if kind else 0, deadline_ms)
    return with_fields(encode(None, None, None)[0], further) + due_ms.to_bytes(6, "big")


LATE = within(5, NOW - 10)  # could start until 5 ms ago


def schedule(shard: Shard, task_id: str, body: bytes, when: str, *, if_exists: str = "reject") -> Outcome:
    """Store a task; `body` has a due time, which `when` replaces."""
    return shard.store(task_id, when, body[:-6], if_exists=if_exists).notes.get(0, Outcome.CREATED)


def test_late_tasks_take_no_lease_no_start_of_the_rate_and_no_attempt(shard: Shard) -> None:
    commands = Commands(shard.commands.queue, limits=Limits(rate_per_second=1, burst=1))
    late = [f"late{n}" for n in range(3)]
    tasks = {**dict.fromkeys(late, LATE), "last": within(9, NOW - 9), "next": within(None)}
    shard.seed(
        State(
            delayed={**dict.fromkeys(late[:2], NOW - 10), "last": NOW - 9, "next": NOW},
            retry={"late2": NOW - 10},
            attempts={"late2": "2 1 boom"},
            tasks=tasks,
            deadlines={**dict.fromkeys(late, NOW - 4), "last": NOW + 1},
        )
    )
    claims = [shard.run(commands.claim(0, 10, LEASE_MS)) for _ in range(4)]
    assert [[lease.task.id for lease in claim.leases] for claim in claims] == [[], [], [], ["last"]]
    assert [(claim.more, claim.held) for claim in claims] == [(True, False)] * 3 + [(False, True)]
    [lease] = claims[3].leases
    assert lease.task.expires_ms == NOW
    whole = shard.whole()
    assert whole.dlq == dict.fromkeys(late, NOW)
    last = "2 1 expired missed its deadline, last error: boom"
    assert whole.dlq_info == {"late0": MISSED, "late1": MISSED, "late2": last}
    assert whole.deadlines == {"last": NOW + 1}
    assert {name: whole.stats.get(name) for name in ("claimed", "expired", "orphans")} == {
        "claimed": 1,
        "expired": 3,
        "orphans": None,
    }


@pytest.mark.parametrize(("drops", "counters"), [(False, 1), (True, 3)])
@pytest.mark.parametrize("verb", ["claim", "expire", "isolate"])
def test_a_call_ends_its_late_tasks_and_counts_them_at_once(
    shard: Shard, verb: str, counters: int, *, drops: bool
) -> None:
    """They are dead letters, or dropped if the document says so."""
    commands = Commands(shard.commands.queue, drops_expired=drops)
    tasks = dict.fromkeys(map(str, range(20)), LATE)
    index = dict.fromkeys(tasks, NOW - 10)
    home = {"suspect" if verb == "isolate" else "delayed": index}
    shard.seed(State(tasks=tasks, deadlines=dict.fromkeys(tasks, NOW)).but(**home))
    call: Any = {
        "claim": commands.claim(0, 99, LEASE_MS),
        "expire": commands.expire(0),
        "isolate": commands.isolate(0, 99, LEASE_MS),
    }[verb]
    shard.redis.config_resetstat()
    shard.run(call)
    assert shard.redis.info("commandstats")["cmdstat_hincrby"]["calls"] == counters
    found = shard.whole()
    assert (found.stats["expired"], found.stats.get("dropped")) == (20, 20 if drops else None)
    dead = State(dlq=dict.fromkeys(tasks, NOW), dlq_info=dict.fromkeys(tasks, MISSED), tasks=tasks)
    assert found.but(stats={}) == (State() if drops else dead)


def test_a_late_suspect_does_not_run_again(shard: Shard) -> None:
    shard.seed(
        State(
            suspect={"a": (NOW - 9) * 1000, "b": (NOW - 9) * 1000},
            attempts={"a": "0 1 ", "b": "0 1 "},
            tasks={"a": LATE, "b": within(20, NOW - 10)},
            deadlines={"a": NOW - 4, "b": NOW + 11},
        )
    )
    claimed = shard.run(shard.commands.isolate(0, 1, LEASE_MS))
    assert (claimed.leases, claimed.suspects, shard.whole().wake) == ([], 1, 1), (
        "another worker runs the rest"
    )
    claimed = shard.run(shard.commands.isolate(0, 5, LEASE_MS))
    assert ([lease.task.id for lease in claimed.leases], claimed.suspects) == (["b"], 0)
    assert shard.whole().dlq_info == {"a": "0 1 expired missed its deadline"}


def test_the_follow_up_of_a_late_task_takes_its_place(shard: Shard) -> None:
    shard.seed(
        State(
            retry={"a": NOW - 1},
            attempts={"a": "1 0 no"},
            tasks={"a": LATE},
            followups={"a": within(50)},
            deadlines={"a": NOW - 4},
        )
    )
    assert not shard.run(shard.commands.claim(0, 5, LEASE_MS)).leases
    found = shard.whole()
    assert (found.delayed, found.tasks, found.dlq) == ({"a": NOW}, {"a": within(50)}, {})
    assert (found.deadlines, found.wake) == ({"a": NOW + 51}, 1)


def test_a_scanner_ends_what_no_worker_claims_and_leaves_what_runs(shard: Shard) -> None:
    """Parked, retrying and scheduled tasks; at most 250 in a call. A stale entry is removed."""
    waiting = {f"w{n:03}": LATE for n in range(BATCH)}
    parked = f"push 00001 {NOW - 10:015d} p"
    shard.seed(
        State(
            delayed=dict.fromkeys(waiting, NOW - 10),
            processing={"r:1": NOW + LEASE_MS},
            dlq={"d": NOW - 1},
            dlq_info={"d": "1 0 buried no"},
            parked={parked: 0},
            tasks={**waiting, "r": LATE, "d": LATE, "p": within(5, NOW - 10, "push"), "plain": within(None)},
            deadlines={**dict.fromkeys(waiting, NOW - 4), **dict.fromkeys(("r", "d", "p", "gone"), NOW)},
        )
    )
    assert shard.run(shard.commands.expire(0)) == (BATCH, BATCH)
    assert shard.run(shard.commands.expire(0)) == (1, 4)
    assert shard.run(shard.commands.expire(0)) == (0, 0)
    found = shard.whole()
    assert found.dlq == {**dict.fromkeys([*waiting, "p"], NOW), "d": NOW - 1}
    assert found.deadlines == {"r": NOW + EXAMINE_AGAIN_MS}
    assert (found.processing, found.parked, found.delayed) == ({"r:1": NOW + LEASE_MS}, {}, {})


async def test_a_scanner_wakes_for_the_next_deadline(shard: Shard, connection: AsyncConnection) -> None:
    scanner = ShardScanner(0, shard.commands, connection, spec=spec(), on_look=print)
    scanner.leads = True
    schedule(shard, "a", within(300), "+0")
    assert shard.whole().alarm == 1, "a scanner that sleeps longer notices it"
    shard.redis.delete(shard.keys.wake)
    shard.redis.zrem(shard.keys.delayed, "a")
    shard.redis.zadd(shard.keys.retry, {"a": NOW + 900})  # no reason to wake earlier
    assert 0.3 < await scanner.step() < 0.31
    shard.clock(NOW + 301)
    assert await scanner.step() == 0
    assert shard.whole().dlq == {"a": NOW + 301}


def test_a_deadline_moves_with_the_due_time_and_not_with_a_retry(shard: Shard) -> None:
    shard.seed(State())
    schedule(shard, "a", within(100), "+0")
    [lease] = shard.run(shard.commands.claim(0, 1, LEASE_MS)).leases
    shard.run(shard.commands.retry(0, [lease.member, 50, 1, "no"], max_attempts=9))
    assert shard.view("a").expires_ms == NOW + 100
    shard.run(shard.commands.reschedule("a", "+1000", max_delay_ms=10**9))
    view = shard.view("a")
    assert (view.at_ms, view.expires_ms) == (NOW + 1000, NOW + 1100)
    assert schedule(shard, "a", within(7), "+30", if_exists="replace") == Outcome.REPLACED
    assert shard.view("a").expires_ms == NOW + 37


def test_a_redriven_task_has_its_whole_time_again(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW - 10}, tasks={"a": LATE}, deadlines={"a": NOW - 4}))
    assert shard.run(shard.commands.expire(0)) == (1, 1)
    assert shard.run(shard.commands.redrive(0, ["a", 0])) == 1
    [lease] = shard.run(shard.commands.claim(0, 1, LEASE_MS)).leases
    assert (lease.task.scheduled_ms, lease.task.expires_ms) == (NOW, NOW + 5)
    assert shard.whole().deadlines == {"a": NOW + 6}


def test_a_task_that_lost_its_index_keeps_its_deadline(shard: Shard) -> None:
    shard.seed(State(tasks={"a": within(5), "b": within(None, NOW)}, deadlines={"a": NOW + 6}))
    shard.clock(NOW + 3)
    lost = [LostTask(b"a"), LostTask(b"b")]
    shard.run(shard.commands.restore_orphans(0, lost))
    assert shard.whole().delayed == {"a": NOW + 3, "b": NOW + 3}
    shard.clock(NOW + 6)
    assert [lease.task.id for lease in shard.run(shard.commands.claim(0, 2, LEASE_MS)).leases] == ["b"]


def test_a_task_that_migrates_has_its_deadline_where_it_arrives(shard: Shard) -> None:
    shard.seed(State())
    envelope = within(20, NOW + 50)
    tasks = [
        MigratingTask(0, (b"a", b"delayed", b"%d" % (NOW + 50), envelope, b"", b"")),
        MigratingTask(0, (b"d", b"dlq", b"%d" % NOW, envelope, b"", b"1 0 buried no")),
    ]
    assert shard.run(shard.commands.migrate_in(0, 1, 7, tasks[1:])) == 1
    assert shard.run(shard.commands.redrive(0, ["d", 9])) == 1
    assert shard.whole().deadlines == {"d": NOW + 30}, "a dead letter has a new period here, too"
    assert shard.run(shard.commands.migrate_in(0, 1, 8, tasks[:1])) == 1
    assert shard.whole().deadlines == {"a": NOW + 71, "d": NOW + 30}


@pytest.mark.parametrize("verb", ["claim", "isolate", "ack"])
def test_a_key_of_another_type_fails_before_any_task_is_taken(shard: Shard, verb: str) -> None:
    before = shard.seed(
        State(
            delayed={"late": NOW - 10, "next": NOW},
            suspect={"s": 7},
            processing={"r:1": NOW + LEASE_MS},
            tasks={"late": LATE, "next": within(9), "s": LATE, "r": within(9)},
        )
    )
    shard.redis.set(shard.keys.deadlines, "of another program")
    call: Any = {
        "claim": shard.commands.claim(0, 9, LEASE_MS),
        "isolate": shard.commands.isolate(0, 9, LEASE_MS),
        "ack": shard.commands.ack(0, [b"r:1"]),
    }[verb]
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        shard.run(call)
    shard.redis.delete(shard.keys.deadlines)
    assert shard.whole() == before


def test_the_deadline_of_the_call_comes_before_that_of_the_queue() -> None:
    encoder = TaskEncoder(Limits(), 7000)
    bodies = [
        encoder.chunk(NewTask(None, 0, deadline_ms=deadline_ms), ShardMap.assumed(1)).flat[2]
        for deadline_ms in (5, None)
    ]
    assert bodies == [within(5)[:-6], within(7000)[:-6]]
    plain = TaskEncoder(Limits()).chunk(NewTask(None, 0), ShardMap.assumed(1)).flat[2]
    assert plain == encode(None, None, None)[0]
