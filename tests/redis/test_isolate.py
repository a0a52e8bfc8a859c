"""isolate: suspects run apart from healthy tasks, in ever smaller groups; a crash is charged to one that ran alone."""

from __future__ import annotations

import pytest
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.results import Claimed
from delayq.protocol.results import State as In

from tests.redis.state import NOW, TOKEN, Shard, State, envelope

LEASE_MS = 30_000
EXPIRY = NOW + LEASE_MS


def isolate(shard: Shard, limit: int = 16) -> list[str]:
    return ids(shard.run(shard.commands.isolate(0, limit, LEASE_MS)))


def ids(claimed: Claimed) -> list[str]:
    return [lease.task.id for lease in claimed.leases]


def error_of(shard: Shard, task_id: str) -> str:
    view = shard.run(shard.commands.get(task_id))
    assert view is not None
    return view.failed.error


def crash(shard: Shard) -> None:
    """Whoever runs anything dies."""
    shard.clock(shard.now_ms() + LEASE_MS)
    while shard.run(shard.commands.reclaim(0, max_crashes=3)):
        pass


def succeed(shard: Shard) -> None:
    """Whatever runs is done."""
    shard.run(shard.commands.ack(0, [member.encode() for member in shard.whole().processing]))


def test_a_group_is_leased_and_each_task_knows_its_half(shard: Shard) -> None:
    suspects = {name: nth for nth, name in enumerate("abc", 1)}
    before = shard.seed(
        State(suspect=suspects, attempts=dict.fromkeys("abc", "1 1 boom"), stats={"token": TOKEN})
    )
    assert isolate(shard) == ["a", "b", "c"]
    first, second = TOKEN + 1, TOKEN + 3
    assert shard.whole() == before.but(
        suspect={},
        processing={f"{name}:{TOKEN + nth}": EXPIRY for name, nth in suspects.items()},
        attempts={
            "a": f"1 1 ~0:{first}:3 boom",
            "b": f"1 1 ~0:{first}:3 boom",
            "c": f"1 1 ~0:{second}:3 boom",
        },
        stats={"token": TOKEN + 3, "claimed": 3},
    )


@pytest.mark.parametrize("index", ["delayed", "retry", "dlq"])
def test_a_suspect_that_an_older_process_has_put_elsewhere_is_none(shard: Shard, index: str) -> None:
    """A reaper that knows of no suspects adopts one; then it is replaced, fails, or dies."""
    score = NOW - 1 if index == "dlq" else NOW + 60_000
    before = shard.seed(State(suspect={"a": 7, "b": 8}).but(**{index: {"a": score}}))
    assert isolate(shard) == ["b"]
    after = shard.whole()
    assert (after.suspect, getattr(after, index)) == ({}, getattr(before, index))


def test_a_suspect_that_is_not_due_since_the_clock_stepped_back_waits_in_retry(shard: Shard) -> None:
    before = shard.seed(State(suspect={"a": 7, "b": 8}, attempts={"a": "0 1 ", "b": f"1 1 @{NOW - 9} "}))
    shard.clock(NOW - 5)
    before = shard.seed(before.but(tasks={"a": envelope(NOW), "b": envelope(NOW - 9)}))
    assert isolate(shard) == ["b"]
    after = shard.whole()
    assert (after.suspect, after.retry, after.attempts["a"]) == ({}, {"a": NOW}, before.attempts["a"])


def test_without_suspects_nothing_is_written(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW}))
    assert isolate(shard) == []
    assert shard.whole() == before


def test_only_the_poison_task_dies_and_it_does_after_three_crashes_alone(shard: Shard) -> None:
    """32 tasks: the crash of all, four of halves of halves, and three of the poison task alone."""
    names = [f"t{n:02}" for n in range(32)]
    shard.seed(State(delayed=dict.fromkeys(names, NOW)))
    shard.run(shard.commands.claim(0, 32, LEASE_MS))
    crash(shard)
    crashed = []
    while group := isolate(shard):
        if "t13" in group:
            crashed.append(len(group))
            crash(shard)
        else:
            succeed(shard)
    found = shard.whole()
    assert crashed == [16, 8, 4, 2, 1, 1, 1]
    assert (list(found.dlq), list(found.envelopes)) == (["t13"], ["t13"])
    assert found.dlq_info["t13"] == "0 8 crashes "
    assert (found.suspect, found.attempts) == ({}, {})


def test_a_group_weighs_a_mebibyte_at_most_and_has_one_task_at_least(shard: Shard) -> None:
    """As for claims: what is large takes time to copy and to send."""
    sizes = {"a": 500_000, "b": 500_000, "c": 500_000, "d": 2_000_000, "e": 9}
    large = {name: envelope(NOW, "x" * size) for name, size in sizes.items()}
    shard.seed(State(suspect=dict.fromkeys(sizes, 7), tasks=large))
    assert [isolate(shard) for _ in range(4)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_half_is_not_joined_with_other_suspects(shard: Shard) -> None:
    shard.seed(State(suspect=dict(zip("abcd", range(1, 5), strict=True))))
    isolate(shard, 4)
    shard.redis.zadd(shard.keys.processing, {"e:8": NOW, "f:9": NOW})
    shard.redis.hset(shard.keys.tasks, mapping=dict.fromkeys("ef", envelope()))
    crash(shard)
    assert [isolate(shard) for _ in range(3)] == [["e", "f"], ["a", "b"], ["c", "d"]]


def test_whoever_kills_workers_again_and_again_buries_nothing_soon(shard: Shard) -> None:
    """Suspects take turns: a task runs alone three times only after all the others did twice."""
    names = [f"t{n}" for n in range(8)]
    shard.seed(State(delayed=dict.fromkeys(names, NOW)))
    shard.run(shard.commands.claim(0, 8, LEASE_MS))
    crash(shard)
    kills = 1
    while not shard.redis.zcard(shard.keys.dlq):
        assert isolate(shard, 4)
        crash(shard)
        kills += 1
    assert kills == 1 + 2 + 4 + 8 + 8 + 1


def test_a_suspect_is_late_from_when_it_first_fell_due(shard: Shard) -> None:
    shard.seed(State(suspect={"a": 7}, tasks={"a": envelope(NOW - 36_000)}, attempts={"a": "0 1 "}))
    [lease] = shard.run(shard.commands.isolate(0, 1, LEASE_MS)).leases
    assert (lease.task.due_ms, lease.task.attempt) == (NOW - 36_000, 2)


def test_a_failure_ends_the_suspicion_and_crashes_alone_stay_charged(shard: Shard) -> None:
    shard.seed(State(suspect={"a": 7}, attempts={"a": "0 2 ~2:7:1 "}, stats={"token": TOKEN}))
    isolate(shard)
    shard.run(shard.commands.retry(0, [f"a:{TOKEN + 1}", 0, 1, "boom"], max_attempts=9))
    found = shard.whole()
    assert (found.retry, found.suspect, found.attempts) == ({"a": NOW}, {}, {"a": "1 2 ~2:0:0 boom"})


def test_an_error_that_looks_like_a_mark_is_none(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}))
    shard.run(shard.commands.retry(0, ["a:7", 0, 1, "~9:7:1 boom"], max_attempts=9))
    assert error_of(shard, "a") == "~9:7:1 boom"
    shard.run(shard.commands.claim(0, 1, LEASE_MS))
    crash(shard)
    assert error_of(shard, "a") == "~9:7:1 boom"
    assert shard.whole().dlq == {}


def test_a_suspect_that_is_handed_back_stays_one_and_keeps_its_group(shard: Shard) -> None:
    """A worker that is told to stop says nothing about its tasks."""
    shard.seed(State(suspect={"a": 1, "b": 2, "c": 3}, stats={"token": TOKEN}))
    isolate(shard)
    shard.run(shard.commands.release(0, [f"a:{TOKEN + 1}", NOW, f"c:{TOKEN + 3}", NOW]))
    assert shard.whole().suspect == {"a": TOKEN + 1, "c": TOKEN + 3}
    succeed(shard)
    assert [isolate(shard), isolate(shard)] == [["a"], ["c"]]


def test_a_claim_leaves_suspects_alone_and_says_how_many_there_are(shard: Shard) -> None:
    before = shard.seed(State(delayed={"a": NOW}, suspect={"b": 7, "c": 8}))
    claimed = shard.run(shard.commands.claim(0, 9, LEASE_MS))
    assert (ids(claimed), claimed.suspects) == (["a"], 2)
    assert shard.whole().suspect == before.suspect


@pytest.mark.parametrize("home", ["delayed", "retry"])
@pytest.mark.parametrize("verb", ["claim", "isolate"])
def test_a_suspect_that_an_older_reaper_adopted_is_leased_once(shard: Shard, home: str, verb: str) -> None:
    shard.seed(State(**{home: {"a": NOW}}, suspect={"a": 7}))  # type: ignore[arg-type]  # a test's own
    claimed = shard.run(getattr(shard.commands, verb)(0, 9, LEASE_MS))
    found = shard.whole()
    assert ids(claimed) == ["a"]
    assert (found.delayed, found.retry, found.suspect) == ({}, {}, {})


def test_suspects_count_as_overdue(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW, "b": NOW + 1}, suspect={"c": (NOW - 5) * 1000}))
    found = shard.run(shard.commands.counts(0))
    assert (found.suspect, found.due, found.scheduled, found.late_ms) == (1, 2, 1, 5)


def test_get_and_list_show_a_suspect_with_the_time_its_run_began(shard: Shard) -> None:
    shard.seed(State(suspect={"a": NOW * 1000 + 7}, attempts={"a": "0 3 ~1:7:1 boom"}))
    view = shard.run(shard.commands.get("a"))
    [row] = shard.run(shard.commands.list(0, In.SUSPECT, offset=0, limit=9))
    assert view is not None
    assert (view.state, view.at_ms, view.failed.crashes, view.failed.error) == (In.SUSPECT, NOW, 3, "boom")
    assert (row.state, row.at_ms, row.failed) == (In.SUSPECT, NOW, view.failed)


def test_cancel_replace_and_reschedule_find_a_suspect(shard: Shard) -> None:
    shard.seed(State(suspect={"a": 7, "b": 8}, attempts={"a": "0 1 ", "b": "0 1 "}))
    assert shard.run(shard.commands.cancel("a")) == "cancelled"
    assert shard.run(shard.commands.reschedule("b", "+500", max_delay_ms=999)).outcome == "rescheduled"
    found = shard.whole()
    assert (found.suspect, found.retry, found.attempts) == ({}, {"b": NOW + 500}, {"b": f"0 1 @{NOW + 500} "})


def test_no_worker_is_woken_for_the_room_that_is_left_to_the_one_that_waits_for_suspects(
    shard: Shard,
) -> None:
    """Its claim would bring nothing, and ring the scanner's alarm: that would wake it again, and so on."""
    limited = Commands(shard.commands.queue, limits=Limits(max_in_flight=2))
    before = shard.seed(State(suspect={"a": 7}, delayed={"c": NOW}, processing={"e:6": EXPIRY}))
    shard.run(shard.commands.lock("", "me", 999, lock="isolation", shard=0))
    wait = shard.run(limited.wake(0))
    assert (wait.due, wait.held, wait.room_seconds) == (False, True, None)
    assert shard.whole() == before


@pytest.mark.parametrize(("burst", "brought"), [(1, ["c"]), (2, ["c"]), (3, ["c", "d"])])
def test_a_rate_leaves_room_for_suspects_and_healthy_tasks_go_on(
    shard: Shard, burst: int, brought: list[str]
) -> None:
    """A busy worker may wait for minutes until it has room: with a burst of one, nothing else would begin."""
    limited = Commands(shard.commands.queue, limits=Limits(rate_per_second=1, burst=burst))
    shard.seed(State(suspect={"a": 7}, delayed={"c": NOW - 1, "d": NOW, "e": NOW}))
    shard.run(shard.commands.lock("", "me", 9999, lock="isolation", shard=0))
    assert ids(shard.run(limited.claim(0, 9, LEASE_MS))) == brought
    wait = shard.run(limited.wake(0))
    assert wait.held
    assert wait.room_seconds == pytest.approx(1.0, abs=0.001)
    shard.clock(NOW + 1001)
    assert len(ids(shard.run(limited.claim(0, 9, LEASE_MS)))) == 1


def test_a_clock_that_steps_back_leaves_no_room_reserved_for_longer(shard: Shard) -> None:
    """The worker that had it may be gone; no other busy worker could make room for suspects meanwhile."""
    first, second = (
        shard.commands.lock("", owner, 999, lock="isolation", shard=0) for owner in ("gone", "next")
    )
    assert shard.run(first) == 0
    shard.clock(NOW - 3_600_000)
    assert shard.run(second) == 0


def test_limits_hold_for_suspects_and_leave_room_for_the_worker_that_waits_for_them(shard: Shard) -> None:
    limited = Commands(shard.commands.queue, limits=Limits(max_in_flight=2))
    shard.seed(State(suspect={"a": 7, "b": 8}, delayed={"c": NOW, "d": NOW}, processing={"e:6": EXPIRY}))
    assert shard.run(shard.commands.lock("", "me", 999, lock="isolation", shard=0)) == 0
    held = shard.run(limited.claim(0, 9, LEASE_MS))
    assert (ids(held), held.held) == ([], True)
    assert ids(shard.run(limited.isolate(0, 9, LEASE_MS))) == ["a"]
    full = shard.run(limited.isolate(0, 9, LEASE_MS))
    assert (ids(full), full.held, full.suspects) == ([], True, 1)
