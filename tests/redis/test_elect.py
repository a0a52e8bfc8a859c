"""elect: each shard has one leader among the scanners, and the shards are spread evenly over them."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.protocol.results import Leadership

from tests.redis.state import NOW, Shard, State

LEASE_MS = 10_000
MINE = f"me {NOW + LEASE_MS}"


def elect(shard: Shard, owner: str = "me", lease_ms: int = LEASE_MS) -> Leadership:
    return shard.run(shard.commands.elect(0, owner, lease_ms))


def scanners(shard: Shard) -> dict[str, int]:
    """Those that are counted, and until when."""
    found: Any = shard.redis.zrange(shard.keys.scanners, 0, -1, withscores=True)
    return {name.decode(): int(until_ms) for name, until_ms in found}


@pytest.mark.parametrize(
    ("leader", "stepped_back_ms"),
    [
        ("", 0),
        (f"me {NOW + 77}", 0),
        (f"other {NOW}", 0),
        (
            f"other {NOW + LEASE_MS + 5000}",
            5000,
        ),  # longer than any lease: written before the clock stepped back
        ("nonsense", 0),
    ],
    ids=["none", "renewed", "expired", "too long", "unreadable"],
)
def test_a_scanner_becomes_leader_of_a_shard_without_one(
    shard: Shard, leader: str, stepped_back_ms: int
) -> None:
    """Also with full memory. The keys expire once no scanner runs."""
    shard.seed(State(leader=leader))
    with shard.full_memory():
        assert elect(shard) == Leadership(
            leads=True, others_ms=0, stepped_back_ms=stepped_back_ms, again_ms=LEASE_MS
        )
    assert (shard.whole(), scanners(shard)) == (State(leader=MINE), {"me": NOW + LEASE_MS})
    for key in (shard.keys.leader, shard.keys.scanners):
        assert 0 < shard.redis.pttl(key) <= LEASE_MS * 10
    assert elect(shard, lease_ms=0) == Leadership(leads=False, others_ms=0, stepped_back_ms=0, again_ms=0)
    assert (shard.whole(), scanners(shard)) == (State(), {})


@pytest.mark.parametrize(("lease_ms", "again_ms"), [(LEASE_MS, 1), (0, 0)])
def test_no_scanner_takes_a_shard_from_its_leader_or_gives_it_up_for_it(
    shard: Shard, lease_ms: int, again_ms: int
) -> None:
    """The reply says how long the other one leads, and when the next scanner may count as dead."""
    shard.redis.zadd(shard.keys.scanners, {"a": NOW + 1})
    before = shard.seed(State(leader=f"other {NOW + 77}"))
    told = elect(shard, lease_ms=lease_ms)
    assert told == Leadership(leads=False, others_ms=77, stepped_back_ms=0, again_ms=again_ms)
    assert shard.whole() == before


def test_a_scanner_counts_until_its_lease_expires_or_for_a_lease_after_a_step_back(shard: Shard) -> None:
    """A scanner that was counted before the clock stepped back is likely to live, but maybe not for an hour."""
    shard.redis.zadd(shard.keys.scanners, {"a": NOW, "b": NOW + 1, "c": NOW + 3_600_000})
    elect(shard)
    assert scanners(shard) == {"b": NOW + 1, "c": NOW + LEASE_MS, "me": NOW + LEASE_MS}


def test_a_leader_stays_until_the_scanner_that_should_lead_comes(shard: Shard) -> None:
    elect(shard, "one")
    shard.redis.zadd(shard.keys.scanners, {"a": NOW + LEASE_MS})
    told = elect(shard, "one")
    assert (told.leads, told.again_ms) == (True, 500), "it soon asks whether the other has come"
    assert elect(shard, "a").leads
    told = elect(shard, "one")
    assert told == Leadership(leads=False, others_ms=LEASE_MS, stepped_back_ms=0, again_ms=LEASE_MS)


def test_a_step_back_is_reported_until_leases_are_shortened_though_replies_are_lost(shard: Shard) -> None:
    elect(shard)
    shard.seed(State(leader=MINE, processing={"a:7": NOW + 30_000}))
    shard.clock(NOW - 3_600_000)
    assert [elect(shard, name).stepped_back_ms for name in ("me", "me")] == [3_600_000, 3_600_000]
    while shard.run(shard.commands.clamp_leases(0, 30_000)).shortened:
        assert elect(shard).stepped_back_ms == 3_600_000
    assert elect(shard).stepped_back_ms == 0
    assert shard.whole().processing == {"a:7": NOW - 3_600_000 + 30_000}
