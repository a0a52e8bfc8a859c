"""lead: one scanner watches a shard; the others know for how long."""

from __future__ import annotations

from delayq.values import Leadership

from tests.redis.state import NOW, Shard, State

LEASE_MS = 10_000
MINE = f"me {NOW + LEASE_MS}"


def lead(shard: Shard, owner: str = "me", lease_ms: int = LEASE_MS) -> Leadership:
    return shard.run(shard.broker.lead(0, owner, lease_ms))


def test_the_first_to_ask_leads(shard: Shard) -> None:
    assert lead(shard) == Leadership(leads=True, others_ms=0, stepped_back_ms=0)
    assert shard.whole() == State(leader=MINE)


def test_another_waits_and_is_told_how_long(shard: Shard) -> None:
    before = shard.seed(State(leader=f"other {NOW + 77}"))
    assert lead(shard) == Leadership(leads=False, others_ms=77, stepped_back_ms=0)
    assert shard.whole() == before


def test_the_leader_renews(shard: Shard) -> None:
    shard.seed(State(leader=f"me {NOW + 77}"))
    assert lead(shard).leads
    assert shard.whole() == State(leader=MINE)


def test_a_lease_that_ran_out_is_free(shard: Shard) -> None:
    shard.seed(State(leader=f"other {NOW}"))
    assert lead(shard).leads
    assert shard.whole() == State(leader=MINE)


def test_a_lease_longer_than_any_was_written_before_the_clock_went_back(shard: Shard) -> None:
    shard.seed(State(leader=f"other {NOW + LEASE_MS + 5000}"))
    assert lead(shard) == Leadership(leads=True, others_ms=0, stepped_back_ms=5000)
    assert shard.whole() == State(leader=MINE)


def test_the_leader_too_learns_that_the_clock_went_back(shard: Shard) -> None:
    lead(shard)
    shard.clock(NOW - 3_600_000)
    assert lead(shard) == Leadership(leads=True, others_ms=0, stepped_back_ms=3_600_000)


def test_giving_up_frees_the_shard_at_once(shard: Shard) -> None:
    shard.seed(State(leader=MINE))
    assert lead(shard, lease_ms=0) == Leadership(leads=False, others_ms=0, stepped_back_ms=0)
    assert shard.whole() == State()


def test_nobody_gives_up_for_another(shard: Shard) -> None:
    before = shard.seed(State(leader=f"other {NOW + 77}"))
    assert lead(shard, lease_ms=0) == Leadership(leads=False, others_ms=77, stepped_back_ms=0)
    assert shard.whole() == before


def test_an_unreadable_entry_does_not_lock_everybody_out(shard: Shard) -> None:
    shard.seed(State(leader="nonsense"))
    assert lead(shard).leads


def test_the_entry_of_a_queue_that_nobody_watches_any_more_goes_away(shard: Shard) -> None:
    lead(shard)
    assert 0 < shard.redis.pttl(shard.keys.leader) <= LEASE_MS * 10


def test_there_is_a_leader_when_memory_is_full(shard: Shard) -> None:
    with shard.full_memory():
        assert lead(shard).leads
