"""recover: one task whose lease ran out is put back, completed, buried or left for later, unless things changed."""

from __future__ import annotations

import pytest
from delayq.message import Task
from delayq.values import Recovered, Unreadable, Verdict

from tests.redis.state import NOW, Shard, State, envelope

OWNER = "me"
LASTS_MS = 10_000


def recover(shard: Shard, verdict: Verdict, member: str = "a:7", **options: str | int) -> Recovered:
    named: dict[str, str | int] = {"reason": "", "wait_ms": 30_000, "max_crashes": 3, "failed": 0}
    return shard.run(shard.broker.recover(0, member.encode(), OWNER, verdict, **(named | options)))


def lock(shard: Shard, owner: str = OWNER, task_id: str = "a") -> None:
    assert shard.run(shard.broker.lock(task_id, owner, LASTS_MS, lock="recovery_lock")) == 0


def locked(shard: Shard, **state: object) -> State:
    """One lease that ran out, and the right to recover its task."""
    lock(shard)
    return shard.seed(State(**({"processing": {"a:7": NOW, "b:8": NOW}} | state)))  # type: ignore[arg-type]  # a test's own


def test_what_still_has_to_run_becomes_a_retry_due_now(shard: Shard) -> None:
    before = locked(shard)
    assert recover(shard, Verdict.REQUEUE) is Recovered.RECLAIMED
    assert shard.whole() == before.but(
        processing={"b:8": NOW}, retry={"a": NOW}, attempts={"a": "0 1 "}, wake=1, stats={"reclaimed": 1}
    )


@pytest.mark.parametrize("crashed", [1, 2])
def test_the_last_of_max_crashes_buries_as_in_reclaim(shard: Shard, crashed: int) -> None:
    before = locked(shard, attempts={"a": f"5 {crashed} boom"})
    outcome = recover(shard, Verdict.REQUEUE)
    by_recover = shard.whole()
    shard.seed(before.but(processing={"a:7": NOW, "b:8": NOW + 1}))
    assert shard.run(shard.broker.reclaim(0, max_crashes=3)) == [("a:7", outcome)]
    assert by_recover == shard.whole().but(processing={"b:8": NOW})


def test_what_has_taken_effect_is_forgotten_as_by_ack(shard: Shard) -> None:
    before = locked(shard, attempts={"a": "1 1 boom", "b": "1 0 x"})
    assert recover(shard, Verdict.COMPLETE) is Recovered.COMPLETED
    assert shard.whole() == before.without(
        "a", processing={"b:8": NOW}, attempts={"b": "1 0 x"}, stats={"completed": 1}
    )


def test_a_buried_task_keeps_the_words_of_the_check_and_counts_the_crash(shard: Shard) -> None:
    before = locked(shard, attempts={"a": "1 1 boom"})
    assert recover(shard, Verdict.BURY, reason="refunded twice") is Recovered.BURIED
    assert shard.whole() == before.but(
        processing={"b:8": NOW},
        attempts={},
        dlq={"a": NOW},
        dlq_info={"a": "1 2 recovered refunded twice"},
        stats={"buried": 1},
    )


def test_a_task_that_has_to_wait_keeps_its_lease_and_is_not_charged(shard: Shard) -> None:
    """Its worker may still wake up and settle it."""
    before = locked(shard, attempts={"a": "1 1 boom"})
    assert recover(shard, Verdict.WAIT, wait_ms=1500) is Recovered.WAITED
    assert shard.whole() == before.but(processing={"a:7": NOW + 1500, "b:8": NOW}, stats={"waited": 1})
    assert shard.run(shard.broker.ack(0, [b"a:7"])) == ["acked"]


@pytest.mark.parametrize("verdict", Verdict)
def test_a_check_that_failed_is_counted_with_what_was_done_instead(shard: Shard, verdict: Verdict) -> None:
    locked(shard)
    recover(shard, verdict, failed=1)
    assert shard.whole().stats["checks_failed"] == 1
    assert sum(shard.whole().stats.values()) == 2


@pytest.mark.parametrize("verdict", Verdict)
def test_a_lease_that_was_settled_meanwhile_is_left_alone(shard: Shard, verdict: Verdict) -> None:
    """Also when the task is leased again: that is another lease."""
    before = locked(shard, processing={"a:9": NOW})
    assert recover(shard, verdict, failed=1) is Recovered.GONE
    assert shard.whole() == before


@pytest.mark.parametrize("verdict", Verdict)
def test_a_lease_that_was_extended_meanwhile_is_left_alone(shard: Shard, verdict: Verdict) -> None:
    before = locked(shard, processing={"a:7": NOW + 1})
    assert recover(shard, verdict, failed=1) is Recovered.ALIVE
    assert shard.whole() == before


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("holder", ["", "other"])
def test_without_the_lock_nothing_is_done(shard: Shard, verdict: Verdict, holder: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW}))
    if holder:
        lock(shard, holder)
    assert recover(shard, verdict, failed=1) is Recovered.LOCK_LOST
    assert shard.whole() == before


def test_a_lock_that_ran_out_is_none(shard: Shard) -> None:
    before = locked(shard)
    shard.clock(NOW + LASTS_MS + 1)
    assert recover(shard, Verdict.COMPLETE) is Recovered.LOCK_LOST
    assert shard.whole() == before


@pytest.mark.parametrize("verdict", Verdict)
def test_a_lease_without_an_envelope_is_dropped_whatever_the_verdict(shard: Shard, verdict: Verdict) -> None:
    locked(shard, processing={"a:7": NOW}, tasks={})
    assert recover(shard, verdict) is Recovered.ORPHANS
    assert shard.whole() == State(stats={"orphans": 1})


@pytest.mark.parametrize("verdict", Verdict)
def test_recovering_twice_does_it_once(shard: Shard, verdict: Verdict) -> None:
    """As one does whose first answer was lost."""
    locked(shard)
    recover(shard, verdict)
    after = shard.whole()
    assert recover(shard, verdict) is (Recovered.ALIVE if verdict is Verdict.WAIT else Recovered.GONE)
    assert shard.whole() == after


@pytest.mark.parametrize("verdict", Verdict)
def test_a_task_can_be_recovered_when_memory_is_full(shard: Shard, verdict: Verdict) -> None:
    locked(shard)
    with shard.full_memory():
        assert recover(shard, verdict).value in {"reclaimed", "completed", "buried", "waited"}


@pytest.mark.parametrize("task_id", ["a:b", "7:7", "ü漢", ":"])
def test_ids_may_hold_colons(shard: Shard, task_id: str) -> None:
    lock(shard, task_id=task_id)
    shard.seed(State(processing={f"{task_id}:7": NOW}))
    recover(shard, Verdict.REQUEUE, f"{task_id}:7")
    assert shard.whole().retry == {task_id: NOW}


def test_expired_leases_come_by_page_the_longest_ago_first(shard: Shard) -> None:
    leases = {f"t{n}:7": NOW - n for n in range(5)}
    before = shard.seed(State(processing=leases | {"later:8": NOW + 1500, "latest:9": NOW + 9000}))
    first = shard.run(shard.broker.expired(0, offset=0, limit=3))
    rest = shard.run(shard.broker.expired(0, offset=3, limit=3))
    assert (first.members, rest.members) == ([b"t4:7", b"t3:7", b"t2:7"], [b"t1:7", b"t0:7"])
    assert [first.next_seconds, rest.next_seconds] == pytest.approx([1.5, 1.5], abs=0.01)
    assert shard.whole() == before


def test_with_no_lease_left_nobody_says_when_the_next_runs_out(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}))
    found = shard.run(shard.broker.expired(0, offset=0, limit=3))
    assert (found.members, found.next_seconds) == ([b"a:7"], None)


def test_a_check_is_given_the_run_that_ended_with_the_lease(shard: Shard) -> None:
    kept = {"a": envelope(NOW - 5000, {"order": 7}, {"from": "shop"})}
    before = shard.seed(State(processing={"a:7": NOW}, tasks=kept, attempts={"a": "2 1 boom"}))
    task = shard.run(shard.broker.examine(0, b"a:7"))
    assert isinstance(task, Task)
    assert (task.id, task.queue, task.attempt, task.token) == ("a", shard.broker.queue, 4, 7)
    assert (task.due_ms, task.scheduled_ms) == (NOW - 5000, NOW - 5000)
    assert (task.payload, task.headers) == ({"order": 7}, {"from": "shop"})
    assert shard.whole() == before


@pytest.mark.parametrize("expiry", [None, NOW + 1], ids=["gone", "lasts"])
def test_nobody_is_asked_about_a_lease_that_is_gone_or_lasts(shard: Shard, expiry: int | None) -> None:
    shard.seed(State(processing={"a:7": expiry} if expiry else {}, tasks={"a": envelope()}))
    assert shard.run(shard.broker.examine(0, b"a:7")) is None


@pytest.mark.parametrize(
    ("member", "kept", "why"),
    [
        (b"a:7", {}, "no task"),
        (b"a:7", {"a": b"short"}, "expected at least"),
        (b"a:7", {"a": b"\x21{}......."}, "version 2"),
        (b"\xff:7", {"a": envelope()}, "no task"),
    ],
    ids=["orphan", "corrupt", "too_new", "not_utf8"],
)
def test_nobody_is_asked_about_what_cannot_be_read(
    shard: Shard, member: bytes, kept: dict[str, bytes], why: str
) -> None:
    shard.seed(State(tasks=kept))
    shard.redis.zadd(shard.keys.processing, {member: NOW})
    found = shard.run(shard.broker.examine(0, member))
    assert isinstance(found, Unreadable)
    assert why in found.why
