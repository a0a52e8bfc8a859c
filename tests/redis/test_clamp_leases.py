"""clamp_leases: after Redis' clock stepped back, no lease lasts longer than a lease."""

from __future__ import annotations

import pytest
from delayq.protocol.results import ClampedLeases

from tests.redis.state import NOW, Shard, State

HOUR_MS = 3_600_000


def seed(shard: Shard, state: State) -> State:
    """As it is after the clock stepped back by an hour."""
    shard.redis.hset(shard.keys.cursors, "clock", NOW + HOUR_MS)
    return shard.seed(state)


def clamp(shard: Shard, **limit: int) -> int:
    return shard.run(shard.commands.clamp_leases(0, 30_000, **limit)).shortened


def test_a_call_is_bounded(shard: Shard) -> None:
    seed(shard, State(processing={f"t{n}:7": NOW + 60_000 + n for n in range(10)}))
    assert clamp(shard, limit=4) == 4
    assert sum(expiry == NOW + 30_000 for expiry in shard.whole().processing.values()) == 4
    seed(shard, State(processing={"a:7": NOW + 60_000} | {f"t{n}:7": -(NOW + 60_000 + n) for n in range(10)}))
    assert [clamp(shard, limit=4) for _ in range(4)] == [4, 4, 3, 0]


def test_nothing_is_shortened_while_the_clock_goes_on(shard: Shard) -> None:
    """A lease may be longer than leaseDurationSeconds, for example after that was lowered."""
    before = shard.seed(State(processing={"a:7": NOW + HOUR_MS}))
    assert shard.run(shard.commands.clamp_leases(0, 30_000)) == ClampedLeases(0, 0)
    shard.clock(NOW + 1)
    assert shard.run(shard.commands.clamp_leases(0, 30_000)) == ClampedLeases(0, 0)
    assert shard.whole() == before


def test_a_step_back_is_known_until_every_lease_is_short_enough(shard: Shard) -> None:
    """The process that shortens them may end, or lose a reply, after any call."""
    shard.run(shard.commands.clamp_leases(0, 30_000))
    shard.seed(State(processing={"a:7": NOW + 30_000, "b:8": NOW + 30_000}))
    shard.clock(NOW - HOUR_MS)
    found = [shard.run(shard.commands.clamp_leases(0, 30_000, limit=1)) for _ in range(4)]
    assert found == [
        ClampedLeases(HOUR_MS, 1),
        ClampedLeases(HOUR_MS, 1),
        ClampedLeases(HOUR_MS, 0),
        ClampedLeases(0, 0),
    ]
    assert shard.whole().processing == dict.fromkeys(("a:7", "b:8"), NOW - HOUR_MS + 30_000)


@pytest.mark.parametrize("sign", [1, -1], ids=["leased", "deferred"])
def test_leases_that_outlive_their_length_are_shortened_once(shard: Shard, sign: int) -> None:
    """Otherwise a step back of an hour delays a crashed worker's tasks by an hour. Also with full memory."""
    longest = sign * (NOW + 30_000)
    leases = {"a:7": sign * (NOW + HOUR_MS), "b:8": sign * (NOW + 30_001), "c:9": longest, "d:1": sign * NOW}
    before = seed(shard, State(processing=leases))
    with shard.full_memory():
        assert [clamp(shard), clamp(shard)] == [2, 0]
    assert shard.whole() == before.but(
        processing={"a:7": longest, "b:8": longest, "c:9": longest, "d:1": sign * NOW}
    )
