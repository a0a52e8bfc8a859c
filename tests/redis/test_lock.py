"""lock, renew, unlock: one task is held by one owner at a time, for a while."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.redis.state import NOW, Shard

TTL_MS = 10_000


def lock(
    shard: Shard, owner: str, ttl_ms: int = TTL_MS, *, key: Literal["lock", "recovery_lock"] = "lock"
) -> int:
    return shard.run(shard.commands.lock("a", owner, ttl_ms, lock=key))


def held(shard: Shard) -> tuple[bytes | str | None, int]:
    """Owner, and ms that are left."""
    key = shard.keys.of("a").lock
    return shard.redis.get(key), shard.redis.pttl(key)


@pytest.mark.parametrize("task_id", ["a", "{x}:ü *"])
def test_one_owner_at_a_time_holds_a_task(shard: Shard, task_id: str) -> None:
    """Also with full memory, or full queues would not drain. Nothing else of the shard changes."""
    before, key = shard.whole(), shard.keys.of(task_id).lock

    def lock(owner: str) -> int:
        return shard.run(shard.commands.lock(task_id, owner, TTL_MS))

    with shard.full_memory():
        assert lock("me") == 0
        assert shard.run(shard.commands.lock("other task", "other", TTL_MS)) == 0
        shard.clock(NOW + 1234)
        assert lock("other") == TTL_MS - 1234, "how long it may last"
        assert lock("me") == 0, "the first answer was lost"
        assert shard.redis.pttl(key) == TTL_MS
        shard.clock(NOW + 2345)
        assert shard.run(shard.commands.renew(task_id, "me", TTL_MS))
        assert (shard.redis.get(key), shard.redis.pttl(key)) == (b"me", TTL_MS)
        assert shard.run(shard.commands.unlock(task_id, "me"))
        assert lock("other") == 0
        shard.clock(NOW + 2345 + TTL_MS + 1)
        assert lock("me") == 0, "it expired"
    assert shard.whole() == before


@pytest.mark.parametrize("holder", ["other", None])
def test_only_the_holder_renews_or_unlocks(shard: Shard, holder: str | None) -> None:
    if holder:
        lock(shard, holder, 77)
    before = held(shard)
    assert not shard.run(shard.commands.renew("a", "me", TTL_MS))
    assert not shard.run(shard.commands.unlock("a", "me"))
    assert held(shard) == before


def test_a_lock_without_expiry_is_respected_and_tried_again_soon(shard: Shard) -> None:
    shard.redis.set(shard.keys.of("a").lock, "another")
    assert lock(shard, "me") == 1
    assert held(shard) == (b"another", -1)


def test_a_guards_lock_is_never_taken_from_its_holder(shard: Shard) -> None:
    """Its holder runs, and may have locked it for longer than others do."""
    lock(shard, "me")
    assert lock(shard, "other", 1000) == TTL_MS
    shard.clock(NOW - 3_600_000)
    assert lock(shard, "other") == TTL_MS + 3_600_000
    assert held(shard)[0] == b"me"


def test_a_recovery_lock_is_another_lock_and_taken_over_after_the_clock_stepped_back(shard: Shard) -> None:
    """A check must not wait for the lock of the worker that crashed, nor for as long as the step."""
    lock(shard, "worker")
    assert lock(shard, "dead", key="recovery_lock") == 0
    assert shard.run(shard.commands.unlock("a", "worker", lock="recovery_lock")) is False
    assert held(shard) == (b"worker", TTL_MS)
    shard.clock(NOW - 3_600_000)
    assert lock(shard, "me", key="recovery_lock") == 0
    key = shard.keys.of("a").recovery_lock
    assert (shard.redis.get(key), shard.redis.pttl(key)) == (b"me", TTL_MS)
    assert lock(shard, "other", key="recovery_lock") == TTL_MS
