"""lock, renew, unlock: one task is held by one owner at a time, for a while."""

from __future__ import annotations

import pytest

from tests.redis.state import NOW, Shard

TTL_MS = 10_000


def lock(shard: Shard, owner: str, ttl_ms: int = TTL_MS) -> int:
    return shard.run(shard.commands.lock("a", owner, ttl_ms))


def renew(shard: Shard, owner: str, ttl_ms: int = TTL_MS) -> bool:
    return shard.run(shard.commands.renew("a", owner, ttl_ms))


def unlock(shard: Shard, owner: str) -> bool:
    return shard.run(shard.commands.unlock("a", owner))


def held(shard: Shard) -> tuple[bytes | str | None, int]:
    """Owner, and ms that are left."""
    key = shard.keys.of("a").lock
    return shard.redis.get(key), shard.redis.pttl(key)


def test_who_asks_first_holds_the_task_and_everything_else_stays_as_it_is(shard: Shard) -> None:
    before = shard.whole()
    assert lock(shard, "me") == 0
    assert held(shard) == (b"me", TTL_MS)
    assert shard.whole() == before


def test_others_are_told_how_long_the_lock_may_last(shard: Shard) -> None:
    lock(shard, "me")
    shard.clock(NOW + 1234)
    assert lock(shard, "other") == TTL_MS - 1234
    assert held(shard) == (b"me", TTL_MS - 1234)


def test_who_asks_again_holds_it_for_longer(shard: Shard) -> None:
    """As one does whose first answer was lost."""
    lock(shard, "me")
    shard.clock(NOW + 1234)
    assert lock(shard, "me") == 0
    assert held(shard) == (b"me", TTL_MS)


def test_a_lock_that_ran_out_is_free(shard: Shard) -> None:
    lock(shard, "me")
    shard.clock(NOW + TTL_MS + 1)
    assert lock(shard, "other") == 0
    assert held(shard) == (b"other", TTL_MS)


def test_the_holder_renews(shard: Shard) -> None:
    lock(shard, "me")
    shard.clock(NOW + 1234)
    assert renew(shard, "me") is True
    assert held(shard) == (b"me", TTL_MS)


def test_nobody_renews_what_another_holds_or_nobody(shard: Shard) -> None:
    assert renew(shard, "me") is False
    assert held(shard) == (None, -2)
    lock(shard, "other", 77)
    assert renew(shard, "me") is False
    assert held(shard) == (b"other", 77)


def test_the_holder_lets_go(shard: Shard) -> None:
    lock(shard, "me")
    assert unlock(shard, "me") is True
    assert held(shard) == (None, -2)


def test_a_late_unlock_leaves_the_next_holder_alone(shard: Shard) -> None:
    lock(shard, "me")
    shard.clock(NOW + TTL_MS + 1)
    lock(shard, "other")
    assert unlock(shard, "me") is False
    assert held(shard) == (b"other", TTL_MS)


def test_a_lock_without_end_made_by_hand_is_respected_and_asked_for_again_soon(shard: Shard) -> None:
    shard.redis.set(shard.keys.of("a").lock, "somebody")
    assert lock(shard, "me") == 1
    assert held(shard) == (b"somebody", -1)


def test_a_task_can_be_held_when_memory_is_full(shard: Shard) -> None:
    """Or full queues would not drain."""
    with shard.full_memory():
        assert lock(shard, "me") == 0
        assert renew(shard, "me")
        assert unlock(shard, "me")


def test_a_recovery_lock_that_outlives_its_length_was_written_before_the_clock_stepped_back(
    shard: Shard,
) -> None:
    """Else nobody could ask about the task for as long as the step was."""
    shard.run(shard.commands.lock("a", "dead", TTL_MS, lock="recovery_lock"))
    shard.clock(NOW - 3_600_000)
    assert shard.run(shard.commands.lock("a", "me", TTL_MS, lock="recovery_lock")) == 0
    key = shard.keys.of("a").recovery_lock
    assert (shard.redis.get(key), shard.redis.pttl(key)) == (b"me", TTL_MS)
    assert shard.run(shard.commands.lock("a", "other", TTL_MS, lock="recovery_lock")) == TTL_MS


def test_a_guards_lock_is_never_taken_from_its_holder(shard: Shard) -> None:
    """It runs, and may have asked for longer than others do."""
    lock(shard, "me")
    assert lock(shard, "other", 1000) == TTL_MS
    shard.clock(NOW - 3_600_000)
    assert lock(shard, "other") == TTL_MS + 3_600_000
    assert held(shard)[0] == b"me"


@pytest.mark.parametrize("task_id", ["a:b", "{x}", "ü 漢", "*"])
def test_any_id_has_a_lock_of_its_own(shard: Shard, task_id: str) -> None:
    lock(shard, "me")
    assert shard.run(shard.commands.lock(task_id, "other", TTL_MS)) == 0
    assert shard.redis.get(shard.keys.of(task_id).lock) == b"other"


def test_the_recovery_of_a_task_is_locked_apart_from_the_task(shard: Shard) -> None:
    """Who asks what became of a task must not wait for the lock of the worker that died with it."""
    lock(shard, "worker")
    assert shard.run(shard.commands.lock("a", "reaper", TTL_MS, lock="recovery_lock")) == 0
    assert shard.run(shard.commands.unlock("a", "worker", lock="recovery_lock")) is False
    assert shard.redis.get(shard.keys.of("a").recovery_lock) == b"reaper"
    assert held(shard) == (b"worker", TTL_MS)
