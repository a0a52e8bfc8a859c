"""isolate: suspects run isolated, in ever smaller groups; only a task that crashed alone is charged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract import Limits
from delayq.protocol.commands import Commands

from tests.redis.state import NOW, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.protocol.results import Claimed

LEASE_MS = 30_000
EXPIRY = NOW + LEASE_MS


def isolate(shard: Shard, limit: int = 16) -> list[str]:
    return ids(shard.run(shard.commands.isolate(0, limit, LEASE_MS)))


def ids(claimed: Claimed) -> list[str]:
    return [lease.task.id for lease in claimed.leases]


def crash(shard: Shard) -> None:
    """All workers crash."""
    shard.clock(shard.now_ms() + LEASE_MS)
    while shard.run(shard.commands.reclaim(0, max_crashes=3)):
        pass


def succeed(shard: Shard) -> None:
    """All running tasks succeed."""
    shard.run(shard.commands.ack(0, [member.encode() for member in shard.whole().processing]))


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


def test_a_group_has_at_most_a_mebibyte_and_at_least_one_task(shard: Shard) -> None:
    """As for claims: what is large takes time to copy and to send."""
    sizes = {"a": 500_000, "b": 500_000, "c": 500_000, "d": 2_000_000, "e": 9}
    large = {name: envelope(NOW, "x" * size) for name, size in sizes.items()}
    shard.seed(State(suspect=dict.fromkeys(sizes, 7), tasks=large))
    assert [isolate(shard) for _ in range(4)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_no_worker_is_woken_for_the_room_that_is_left_to_the_one_that_waits_for_suspects(
    shard: Shard,
) -> None:
    """Its claim would bring nothing and wake the scanner, which would wake a worker again, and so on."""
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
    """The worker that had reserved it may be gone, and no other worker could make room for suspects."""
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
