"""claim: due tasks become leases."""

from __future__ import annotations

import pytest
from delayq.protocol.envelope import encode
from delayq.protocol.results import Claimed

from tests.redis.state import NOW, PLENTY, TOKEN, Shard, State, envelope

LEASE_MS = 30_000
EXPIRY = NOW + LEASE_MS


def claim(shard: Shard, limit: int = 10) -> Claimed:
    return shard.run(shard.commands.claim(0, limit, LEASE_MS))


def ids(claimed: Claimed) -> list[str]:
    return [lease.task.id for lease in claimed.leases]


@pytest.mark.parametrize("home", ["delayed", "retry"])
def test_what_is_due_is_leased_and_what_is_due_a_millisecond_later_is_not(shard: Shard, home: str) -> None:
    """Also after the clock stepped back: nothing runs early by Redis' clock."""
    before = shard.seed(State().but(**{home: {"past": NOW - 5, "now": NOW, "later": NOW + 1}}, tasks=None))
    shard.clock(NOW - 6)
    assert claim(shard) == Claimed(NOW - 6)
    assert shard.whole() == before
    shard.clock(NOW)
    assert ids(claim(shard)) == ["past", "now"]
    assert getattr(shard.whole(), home) == {"later": NOW + 1}


@pytest.mark.parametrize("kept", [{"here": envelope()}, {}], ids=["beside a task", "alone"])
def test_an_index_entry_without_an_envelope_is_dropped_and_counted(
    shard: Shard, kept: dict[str, bytes]
) -> None:
    due = {"gone": NOW - 1} | dict.fromkeys(kept, NOW)
    shard.seed(State(delayed=due, retry={"lost": NOW}, tasks=kept, stats={"token": TOKEN}))
    assert ids(claim(shard)) == list(kept)
    assert shard.whole() == State(
        processing={f"{name}:{TOKEN + 2}": EXPIRY for name in kept},
        tasks=kept,
        stats={"token": TOKEN + 2 + len(kept), "claimed": len(kept), "orphans": 2},
    )


def test_a_claim_takes_at_most_250(shard: Shard) -> None:
    """However many slots a worker has: that is about a millisecond of Redis' time."""
    shard.seed(State(delayed={f"d{n}": NOW for n in range(300)}, retry={f"r{n}": NOW for n in range(300)}))
    claimed = claim(shard, 100_000)
    assert (len(claimed.leases), claimed.more) == (250, True)
    after = shard.whole()
    assert (len(after.delayed), len(after.retry), len(after.processing)) == (50, 300, 250)


@pytest.mark.parametrize("due", [{}, {"a": NOW}])
def test_the_claim_that_ends_a_backlog_drops_the_stale_wake_token_and_wakes_the_scanner(
    shard: Shard, due: dict[str, int]
) -> None:
    """A wake token that stays means that every worker is busy, which this claim disproves."""
    shard.seed(State(delayed=due, wake=1))
    claim(shard)
    after = shard.whole()
    assert (after.wake, after.alarm) == (0, 1)


def scheduled(shard: Shard, sizes: list[int]) -> None:
    """Through schedule, which notes how large the largest is."""
    for nth, size in enumerate(sizes):
        body = encode(b"x" * size, None, None)[0]
        call = shard.commands.schedule(
            0, [f"t-{nth:03}", str(NOW - len(sizes) + nth), body], if_exists="reject", repeated=0, **PLENTY
        )
        shard.run(call)


@pytest.mark.parametrize(
    ("sizes", "claims"), [([256 * 1024] * 9, [3, 3, 3]), ([10, 2 << 20, 10], [1, 1, 1])], ids=["many", "huge"]
)
def test_a_claim_brings_about_a_mebibyte_and_leaves_the_rest_to_the_next(
    shard: Shard, sizes: list[int], claims: list[int]
) -> None:
    """250 tasks of 256 KiB would hold Redis for a second, and their leases expire on the way."""
    scheduled(shard, sizes)
    found = [claim(shard, 250) for _ in claims]
    assert [len(each.leases) for each in found] == claims
    assert [name for each in found for name in ids(each)] == [f"t-{nth:03}" for nth in range(len(sizes))]
    assert [each.more for each in found] == [True, True, False]
