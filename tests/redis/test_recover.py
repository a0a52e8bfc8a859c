"""reclaim, expired, examine and recover where test_machine.py does not get: pages, and leases of broken tasks."""

from __future__ import annotations

import pytest
from delayq.protocol.results import Recovered, Unreadable, Verdict

from tests.redis.state import NOW, Shard, State, envelope


def test_a_lease_that_expired_while_redis_was_hanging_is_left_to_its_worker(shard: Shard) -> None:
    """No worker could extend it before Redis executed this call."""
    shard.seed(State(processing={"a:7": NOW - 30_000, "b:8": NOW - 29_999}))
    call = shard.commands.reclaim(0, max_crashes=9, before_ms=NOW - 30_000)
    assert shard.run(call) == [("a:7", "reclaimed")]


@pytest.mark.parametrize(
    ("mark", "outcome"),
    [
        ("", "reclaimed"),
        ("~2:0:0 ", "reclaimed"),  # it failed since
        ("~2:6:1 ", "reclaimed"),  # alone in an earlier run
        ("~2:8:1 ", "reclaimed"),  # in a later one
        ("~2:7:2 ", "reclaimed"),  # with another task
        ("~1:7:1 ", "reclaimed"),  # for the second time alone
        ("~2:7:1 ", "buried"),
    ],
)
def test_only_a_crash_alone_under_this_very_lease_is_charged(shard: Shard, mark: str, outcome: str) -> None:
    """A crash beside other tasks does not tell which of them caused it, however often it happens."""
    shard.seed(State(processing={"a:7": NOW}, attempts={"a": f"0 99 {mark}boom"}))
    assert shard.run(shard.commands.reclaim(0, max_crashes=3)) == [("a:7", outcome)]


def test_expired_leases_come_page_by_page_oldest_first_and_then_the_deferred_ones(shard: Shard) -> None:
    deferred = {f"p{n}:7": -(NOW - n) for n in range(4)}
    fresh = {f"t{n}:7": NOW - 100 - n for n in range(3)}
    before = shard.seed(State(processing=deferred | fresh | {"later:8": -(NOW + 700), "held:9": NOW + 9000}))
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
def test_a_lease_without_a_token_or_an_envelope_is_dropped_and_does_not_stop_others(
    shard: Shard, member: str
) -> None:
    """Its task, if there is one, is left to the reaper."""
    before = shard.seed(
        State(processing={member: NOW - 1, "b:8": NOW}, tasks=dict.fromkeys("ab", envelope()))
    )
    assert shard.run(shard.commands.reclaim(0, max_crashes=3)) == [(member, "orphans"), ("b:8", "reclaimed")]
    after = shard.whole()
    assert (after.suspect, after.tasks, after.stats) == (
        {"b": 8},
        before.tasks,
        {"orphans": 1, "reclaimed": 1},
    )
    before = shard.seed(before)
    examined = shard.run(shard.commands.examine(0, member.encode()))
    assert examined is not None
    assert isinstance(examined.task, Unreadable)
    shard.run(shard.commands.lock(member.rpartition(":")[0], "me", 1000, lock="recovery_lock"))
    options: dict[str, str | int] = {"reason": "", "wait_ms": 1, "max_crashes": 3, "failed": 0}
    call = shard.commands.recover(0, member.encode(), "me", Verdict.REQUEUE, expiry_ms=NOW - 1, **options)
    assert shard.run(call) is Recovered.ORPHANS
    assert shard.whole() == before.but(processing={"b:8": NOW}, stats={"orphans": 1})


@pytest.mark.parametrize(
    ("member", "kept", "why"),
    [
        (b"a:7", {}, "no task"),
        (b"a:7", {"a": b"short"}, "expected at least"),
        (b"a:7", {"a": b"\x31{}......."}, "version 3"),
        (b"\xff:7", {"a": envelope()}, "no task"),
    ],
    ids=["orphan", "corrupt", "too_new", "not_utf8"],
)
def test_no_check_is_called_for_a_task_that_cannot_be_read(
    shard: Shard, member: bytes, kept: dict[str, bytes], why: str
) -> None:
    shard.seed(State(tasks=kept))
    shard.redis.zadd(shard.keys.processing, {member: NOW})
    found = shard.run(shard.commands.examine(0, member))
    assert found is not None
    assert isinstance(found.task, Unreadable)
    assert why in found.task.why
