"""recover: one task whose lease ran out is put back, completed, buried or left for later, unless things changed."""

from __future__ import annotations

import pytest
from delayq.protocol.envelope import Task
from delayq.protocol.results import Recovered, Unreadable, Verdict
from delayq.protocol.results import State as In

from tests.redis.state import NOW, Shard, State, envelope

OWNER = "me"
LASTS_MS = 10_000


def recover(shard: Shard, verdict: Verdict, member: str = "a:7", **options: str | int) -> Recovered:
    """As it is after an examination at NOW."""
    named: dict[str, str | int] = {
        "expiry_ms": NOW,
        "reason": "",
        "wait_ms": 30_000,
        "max_crashes": 3,
        "failed": 0,
    }
    return shard.run(shard.commands.recover(0, member.encode(), OWNER, verdict, **(named | options)))


def lock(shard: Shard, owner: str = OWNER, task_id: str = "a") -> None:
    assert shard.run(shard.commands.lock(task_id, owner, LASTS_MS, lock="recovery_lock")) == 0


def locked(shard: Shard, **state: object) -> State:
    """One lease that ran out, and the right to recover its task."""
    lock(shard)
    return shard.seed(State(**({"processing": {"a:7": NOW, "b:8": NOW}} | state)))  # type: ignore[arg-type]  # a test's own


def test_what_still_has_to_run_becomes_a_suspect(shard: Shard) -> None:
    before = locked(shard)
    assert recover(shard, Verdict.REQUEUE) is Recovered.RECLAIMED
    assert shard.whole() == before.but(
        processing={"b:8": NOW}, suspect={"a": 7}, attempts={"a": "0 1 "}, wake=1, stats={"reclaimed": 1}
    )


@pytest.mark.parametrize("crashed", [1, 2])
def test_the_last_of_max_crashes_buries_as_in_reclaim(shard: Shard, crashed: int) -> None:
    before = locked(shard, attempts={"a": f"5 9 ~{crashed}:7:1 boom"})
    outcome = recover(shard, Verdict.REQUEUE)
    by_recover = shard.whole()
    shard.seed(before.but(processing={"a:7": NOW, "b:8": NOW + 1}))
    assert shard.run(shard.commands.reclaim(0, max_crashes=3)) == [("a:7", outcome)]
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
    """Its worker may still wake up and settle it. Below zero, the lease is told from one that a worker extends."""
    before = locked(shard, attempts={"a": "1 1 boom"})
    assert recover(shard, Verdict.WAIT, wait_ms=1500) is Recovered.WAITED
    assert shard.whole() == before.but(processing={"a:7": -(NOW + 1500), "b:8": NOW}, stats={"waited": 1})
    assert shard.run(shard.commands.ack(0, [b"a:7"])) == ["acked"]


def test_a_task_that_was_put_off_is_asked_about_again_when_its_time_has_come(shard: Shard) -> None:
    locked(shard, processing={"a:7": -(NOW + 1500)})
    assert shard.run(shard.commands.examine(0, b"a:7")) is None
    assert recover(shard, Verdict.COMPLETE, expiry_ms=-(NOW + 1500)) is Recovered.ALIVE
    shard.clock(NOW + 1500)
    examined = shard.run(shard.commands.examine(0, b"a:7"))
    assert examined is not None
    lock(shard)
    assert recover(shard, Verdict.COMPLETE, expiry_ms=examined.expiry_ms) is Recovered.COMPLETED


@pytest.mark.parametrize("expiry", [NOW, NOW + 1, None], ids=["done", "alive", "gone"])
def test_the_lock_is_given_back_with_the_verdict(shard: Shard, expiry: int | None) -> None:
    """And nobody else's."""
    locked(shard, processing={} if expiry is None else {"a:7": expiry})
    recover(shard, Verdict.WAIT)
    assert shard.redis.exists(shard.keys.of("a").recovery_lock) == 0
    lock(shard, "other")
    recover(shard, Verdict.WAIT)
    assert shard.redis.get(shard.keys.of("a").recovery_lock) == b"other"


def test_who_holds_a_task_that_was_put_off_extends_it_as_if_nothing_had_been(shard: Shard) -> None:
    before = shard.seed(State(processing={"a:7": -(NOW + 1500)}))
    assert shard.run(shard.commands.extend(0, [b"a:7"], 5000)) == set()
    assert shard.whole() == before.but(processing={"a:7": NOW + 5000})


def test_a_task_that_was_put_off_runs_again_once_nobody_is_to_be_asked(shard: Shard) -> None:
    """The document names no check any more."""
    shard.seed(State(processing={"a:7": -(NOW + 86_400_000)}))
    wait = shard.run(shard.commands.wake(0))
    assert wait.next_expiry_seconds == 0
    assert shard.run(shard.commands.reclaim(0, max_crashes=3)) == [("a:7", "reclaimed")]


def test_people_are_told_until_when_a_task_is_put_off(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": -(NOW + 1500)}))
    view = shard.run(shard.commands.get("a"))
    assert view is not None
    [row] = shard.run(shard.commands.list(0, In.IN_FLIGHT, offset=0, limit=5))
    assert view.at_ms == row.at_ms == NOW + 1500


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
def test_a_lease_that_was_extended_and_ran_out_again_is_asked_about_again(
    shard: Shard, verdict: Verdict
) -> None:
    """What its worker did in between, the check could not know."""
    before = locked(shard, processing={"a:7": NOW - 500})
    examined = shard.run(shard.commands.examine(0, b"a:7"))
    assert examined is not None
    shard.run(shard.commands.extend(0, [b"a:7"], 200))
    shard.clock(NOW + 500)
    assert recover(shard, verdict, expiry_ms=examined.expiry_ms) is Recovered.ALIVE
    assert shard.whole() == before.but(processing={"a:7": NOW + 200})


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
    assert shard.whole().suspect == {task_id: 7}


def test_expired_leases_come_by_page_the_longest_ago_first(shard: Shard) -> None:
    leases = {f"t{n}:7": NOW - n for n in range(5)}
    before = shard.seed(State(processing=leases | {"later:8": NOW + 1500, "latest:9": NOW + 9000}))
    first = shard.run(shard.commands.expired(0, offset=0, limit=3))
    rest = shard.run(shard.commands.expired(0, offset=3, limit=3))
    assert (first.members, rest.members) == ([b"t4:7", b"t3:7", b"t2:7"], [b"t1:7", b"t0:7"])
    assert [first.next_seconds, rest.next_seconds] == pytest.approx([1.5, 1.5], abs=0.01)
    assert shard.whole() == before


def test_leases_that_were_put_off_come_after_those_that_just_ran_out(shard: Shard) -> None:
    put_off = {f"p{n}:7": -(NOW - n) for n in range(4)}
    fresh = {f"t{n}:7": NOW - 100 - n for n in range(3)}
    shard.seed(State(processing=put_off | fresh | {"later:8": -(NOW + 700), "held:9": NOW + 9000}))
    expected = [b"t2:7", b"t1:7", b"t0:7", b"p3:7", b"p2:7", b"p1:7", b"p0:7"]
    for size in range(1, 9):
        found = [
            shard.run(shard.commands.expired(0, offset=at, limit=size))
            for at in range(0, len(expected), size)
        ]
        assert [member for page in found for member in page.members] == expected
        assert [page.next_seconds for page in found] == pytest.approx([0.7] * len(found), abs=0.01)


@pytest.mark.parametrize("member", ["a", "a:b", ":", "a:7x"])
def test_a_lease_without_a_token_is_dropped_and_its_task_left_to_be_adopted(
    shard: Shard, member: str
) -> None:
    """Only a hand can have written it. It must not stand in the way of others."""
    lock(shard, task_id=member.rpartition(":")[0])
    before = shard.seed(State(processing={member: NOW}, tasks={"a": envelope()}))
    examined = shard.run(shard.commands.examine(0, member.encode()))
    assert examined is not None
    assert isinstance(examined.task, Unreadable)
    assert recover(shard, Verdict.REQUEUE, member) is Recovered.ORPHANS
    assert shard.whole() == before.but(processing={}, stats={"orphans": 1})


def test_with_no_lease_left_nobody_says_when_the_next_runs_out(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW}))
    found = shard.run(shard.commands.expired(0, offset=0, limit=3))
    assert (found.members, found.next_seconds) == ([b"a:7"], None)


def test_a_check_is_given_the_run_that_ended_with_the_lease(shard: Shard) -> None:
    kept = {"a": envelope(NOW - 5000, {"order": 7}, {"from": "shop"})}
    before = shard.seed(State(processing={"a:7": NOW}, tasks=kept, attempts={"a": "2 1 boom"}))
    examined = shard.run(shard.commands.examine(0, b"a:7"))
    assert examined is not None
    assert examined.expiry_ms == NOW
    task = examined.task
    assert isinstance(task, Task)
    assert (task.id, task.queue, task.attempt, task.token) == ("a", shard.commands.queue, 4, 7)
    assert (task.due_ms, task.scheduled_ms) == (NOW - 5000, NOW - 5000)
    assert (task.payload, task.headers) == ({"order": 7}, {"from": "shop"})
    assert shard.whole() == before


@pytest.mark.parametrize("expiry", [None, NOW + 1], ids=["gone", "lasts"])
def test_nobody_is_asked_about_a_lease_that_is_gone_or_lasts(shard: Shard, expiry: int | None) -> None:
    shard.seed(State(processing={"a:7": expiry} if expiry else {}, tasks={"a": envelope()}))
    assert shard.run(shard.commands.examine(0, b"a:7")) is None


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
    found = shard.run(shard.commands.examine(0, member))
    assert found is not None
    assert isinstance(found.task, Unreadable)
    assert why in found.task.why
