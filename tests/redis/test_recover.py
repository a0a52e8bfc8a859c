"""recover: one task whose lease ran out is put back, completed, buried or left for later, unless things changed."""

from __future__ import annotations

from typing import Any

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


EFFECTS: dict[Verdict, tuple[Recovered, Recovered, dict[str, Any], str]] = {
    Verdict.REQUEUE: (
        Recovered.RECLAIMED,
        Recovered.GONE,
        {"suspect": {"a:1": 7}, "attempts": {"a:1": "1 2 boom", "b": "1 0 x"}, "wake": 1},
        "reclaimed",
    ),
    Verdict.COMPLETE: (Recovered.COMPLETED, Recovered.GONE, {"tasks": {"b": envelope()}}, "completed"),
    Verdict.BURY: (
        Recovered.BURIED,
        Recovered.GONE,
        {"dlq": {"a:1": NOW}, "dlq_info": {"a:1": "1 2 recovered refunded twice"}},
        "buried",
    ),
    Verdict.WAIT: (
        Recovered.WAITED,
        Recovered.ALIVE,
        {"processing": {"a:1:7": -(NOW + 1500), "b:8": NOW}, "attempts": {"a:1": "1 1 boom", "b": "1 0 x"}},
        "waited",
    ),
}


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_is_carried_out_once(shard: Shard, verdict: Verdict, failed: int) -> None:
    """Also with all memory in use. The lock goes with it, and a failed check is counted beside what was done instead.

    A task that has to wait keeps its lease, and is not charged: its worker may wake up and settle it. Below zero, the
    lease is told from one that a worker extends.
    """
    outcome, again, changes, counter = EFFECTS[verdict]
    lock(shard, task_id="a:1")
    before = shard.seed(
        State(processing={"a:1:7": NOW, "b:8": NOW}, attempts={"a:1": "1 1 boom", "b": "1 0 x"})
    )
    options: dict[str, str | int] = {"reason": "refunded twice", "wait_ms": 1500, "failed": failed}
    with shard.full_memory():
        assert recover(shard, verdict, "a:1:7", **options) is outcome
    stats = {counter: 1} | ({"checks_failed": 1} if failed else {})
    after = before.but(**({"processing": {"b:8": NOW}, "attempts": {"b": "1 0 x"}} | changes), stats=stats)
    assert shard.whole() == after
    assert shard.redis.exists(shard.keys.of("a:1").recovery_lock) == 0
    assert recover(shard, verdict, "a:1:7", **options) is again, "the first answer was lost"
    assert shard.whole() == after


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize(
    ("expiry", "holder", "outcome"),
    [
        (None, OWNER, Recovered.GONE),
        (NOW + 1, OWNER, Recovered.ALIVE),
        (NOW, "", Recovered.LOCK_LOST),
        (NOW, "other", Recovered.LOCK_LOST),
    ],
    ids=["settled", "extended", "lock expired", "locked by another"],
)
def test_a_verdict_that_is_not_current_changes_nothing(
    shard: Shard, verdict: Verdict, *, expiry: int | None, holder: str, outcome: Recovered
) -> None:
    """The lease was settled, and the task may be leased again; or extended; or somebody else may ask by now."""
    lock(shard)
    shard.clock(NOW + LASTS_MS + 1)
    if holder:
        lock(shard, holder)
    leases = {"a:9": NOW} if expiry is None else {"a:7": expiry + LASTS_MS + 1 if expiry > NOW else NOW}
    before = shard.seed(State(processing=leases))
    assert recover(shard, verdict, failed=1) is outcome
    assert shard.whole() == before


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
def test_the_lock_is_given_back_with_the_verdict_and_nobody_elses(shard: Shard, expiry: int | None) -> None:
    locked(shard, processing={} if expiry is None else {"a:7": expiry})
    recover(shard, Verdict.WAIT)
    assert shard.redis.exists(shard.keys.of("a").recovery_lock) == 0
    lock(shard, "other")
    recover(shard, Verdict.WAIT)
    assert shard.redis.get(shard.keys.of("a").recovery_lock) == b"other"


def test_a_task_that_was_put_off_runs_again_once_nobody_is_to_be_asked(shard: Shard) -> None:
    """The document names no check any more. Until then, people are told until when it is put off."""
    at_ms = NOW + 86_400_000
    shard.seed(State(processing={"a:7": -at_ms}))
    [row] = shard.run(shard.commands.list(0, In.IN_FLIGHT, offset=0, limit=5))
    assert shard.view("a").at_ms == row.at_ms == at_ms
    wait = shard.run(shard.commands.wake(0))
    assert wait.next_expiry_seconds == 0
    assert shard.run(shard.commands.reclaim(0, max_crashes=3)) == [("a:7", "reclaimed")]


def test_expired_leases_come_by_page_the_longest_ago_first_and_then_those_that_were_put_off(
    shard: Shard,
) -> None:
    put_off = {f"p{n}:7": -(NOW - n) for n in range(4)}
    fresh = {f"t{n}:7": NOW - 100 - n for n in range(3)}
    before = shard.seed(State(processing=put_off | fresh | {"later:8": -(NOW + 700), "held:9": NOW + 9000}))
    expected = [b"t2:7", b"t1:7", b"t0:7", b"p3:7", b"p2:7", b"p1:7", b"p0:7"]
    for size in range(1, 9):
        found = [
            shard.run(shard.commands.expired(0, offset=at, limit=size))
            for at in range(0, len(expected), size)
        ]
        assert [member for page in found for member in page.members] == expected
        assert [page.next_seconds for page in found] == pytest.approx([0.7] * len(found), abs=0.01)
    assert shard.whole() == before
    shard.seed(State(processing={"a:7": NOW}))
    assert shard.run(shard.commands.expired(0, offset=0, limit=3)).next_seconds is None


@pytest.mark.parametrize("member", ["a", "a:b", ":", "a:7x", "gone:7"])
def test_a_lease_without_a_token_or_an_envelope_is_dropped_and_its_task_left_to_be_adopted(
    shard: Shard, member: str
) -> None:
    """It must not stand in the way of others."""
    lock(shard, task_id=member.rpartition(":")[0])
    before = shard.seed(State(processing={member: NOW}, tasks={"a": envelope()}))
    examined = shard.run(shard.commands.examine(0, member.encode()))
    assert examined is not None
    assert isinstance(examined.task, Unreadable)
    assert recover(shard, Verdict.REQUEUE, member) is Recovered.ORPHANS
    assert shard.whole() == before.but(processing={}, stats={"orphans": 1})


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
