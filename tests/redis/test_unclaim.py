"""unclaim: the tasks of a claim whose reply was lost are put back, and a claim that was abandoned takes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.results import Ticket

from tests.redis.state import NOW, TOKEN, Shard, State, envelope

if TYPE_CHECKING:
    from delayq.protocol.results import Claimed

LEASE_MS = 30_000
EXPIRY = NOW + LEASE_MS
DUE = State(
    delayed={"fresh": NOW - 9, "later": NOW + 1},
    retry={"failed": NOW - 5, "crashed": NOW - 7},
    attempts={"failed": f"1 0 @{NOW - 5} boom", "crashed": "0 1 "},
    tasks={
        "fresh": envelope(NOW - 9),
        "later": envelope(NOW + 1),
        "failed": envelope(NOW - 99),
        "crashed": envelope(NOW - 99),
    },
    stats={"token": TOKEN},
)


def claim(
    shard: Shard, number: int, *, claimer: str = "one", not_after_ms: int = NOW, limit: int = 9
) -> Claimed:
    return shard.run(shard.commands.claim(0, limit, LEASE_MS, ticket=Ticket(claimer, number, not_after_ms)))


def unclaim(shard: Shard, number: int, *, claimer: str = "one") -> int:
    return shard.run(shard.commands.unclaim(0, claimer, number, LEASE_MS))


def record(shard: Shard) -> tuple[str, bool]:
    """What is recorded of the last claim of `one`, and whether that expires with its leases."""
    key = shard.keys.claimed_by("one").claim
    kept: Any = shard.redis.get(key)
    ttl_ms: Any = shard.redis.pttl(key)
    return (kept or b"").decode(), 0 < ttl_ms <= LEASE_MS


def test_a_lost_claim_that_redis_has_not_executed_yet_never_is(shard: Shard) -> None:
    before = shard.seed(DUE)
    assert unclaim(shard, 2) == 0
    for number in (1, 2):
        assert claim(shard, number).abandoned
    assert shard.whole() == before
    assert record(shard) == ("2", True)
    assert len(claim(shard, 3).leases) == 3


def test_a_claim_is_executed_until_its_time_and_no_longer(shard: Shard) -> None:
    before = shard.seed(DUE)
    late = claim(shard, 1, not_after_ms=NOW - 1)
    assert (late.abandoned, late.now_ms, late.leases) == (True, NOW, [])
    assert shard.whole() == before
    assert record(shard)[0] == ""
    assert len(claim(shard, 2, not_after_ms=NOW).leases) == 3


def test_leases_of_other_claims_are_left_alone(shard: Shard) -> None:
    """They expire at the same millisecond."""
    shard.seed(DUE)
    [before] = claim(shard, 1, limit=1).leases
    [lost] = claim(shard, 1, claimer="two", limit=1).leases
    [after] = claim(shard, 2, limit=1).leases
    assert unclaim(shard, 1, claimer="two") == 1
    assert shard.whole().processing == {before.member.decode(): EXPIRY, after.member.decode(): EXPIRY}
    assert lost.task.id in shard.whole().retry


def test_a_settled_or_reclaimed_lease_is_not_put_back(shard: Shard) -> None:
    shard.seed(DUE)
    leases = claim(shard, 1).leases
    shard.run(shard.commands.ack(0, [leases[0].member]))
    shard.redis.zrem(shard.keys.processing, leases[1].member)
    shard.redis.zadd(shard.keys.retry, {leases[1].task.id: NOW + 60})
    assert unclaim(shard, 1) == 1
    assert shard.whole().processing == {}
    assert shard.whole().retry[leases[1].task.id] == NOW + 60


def test_a_late_request_leaves_a_newer_claim_alone(shard: Shard) -> None:
    shard.seed(DUE)
    claim(shard, 1, limit=1)
    claim(shard, 2)
    assert record(shard) == (f"2 {EXPIRY} {TOKEN + 2} 2", True), (
        "one for each claimer; it expires with the leases"
    )
    after = shard.whole()
    assert unclaim(shard, 1) == 0
    assert (shard.whole(), record(shard)[0]) == (after, f"2 {EXPIRY} {TOKEN + 2} 2")
    assert unclaim(shard, 2) == 2


@pytest.mark.parametrize("number", [0, 3])
def test_a_claim_that_brings_nothing_or_asks_for_no_record_leaves_none(shard: Shard, number: int) -> None:
    shard.seed(DUE if number == 0 else State())
    claim(shard, number)
    assert record(shard)[0] == ""


def test_what_another_program_wrote_into_the_record_stops_no_claim(shard: Shard) -> None:
    shard.seed(DUE)
    shard.redis.set(shard.keys.claimed_by("one").claim, "not ours")
    assert unclaim(shard, 1) == 0
    assert len(claim(shard, 2).leases) == 3
