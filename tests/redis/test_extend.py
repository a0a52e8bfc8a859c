"""extend: a lease lasts longer, if it is still held."""

from __future__ import annotations

from tests.redis.state import NOW, Shard, State


def test_a_held_lease_lasts_its_length_from_now(shard: Shard) -> None:
    """Also one that ran out and that nobody took back."""
    before = shard.seed(State(processing={"a:7": NOW + 5, "b:8": NOW - 5, "c:9": NOW + 7}))
    assert shard.run(shard.commands.extend(0, [b"a:7", b"b:8"], 30_000)) == set()
    assert shard.whole() == before.but(processing={"a:7": NOW + 30_000, "b:8": NOW + 30_000, "c:9": NOW + 7})


def test_a_stale_token_is_told_so_and_gets_nothing(shard: Shard) -> None:
    """Extending must not bring back a lease that somebody else took over, or that was settled."""
    before = shard.seed(State(processing={"a:8": NOW}, retry={"b": NOW}))
    assert shard.run(shard.commands.extend(0, [b"a:7", b"b:7", b"gone:7"], 30_000)) == {0, 1, 2}
    assert shard.whole() == before


def test_positions_name_the_lost_ones(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW, "c:9": NOW}))
    assert shard.run(shard.commands.extend(0, [b"a:7", b"b:8", b"c:9"], 1)) == {1}


def test_after_a_clock_step_back_an_extended_lease_is_not_too_long(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW + 3_600_000}))
    shard.run(shard.commands.extend(0, [b"a:7"], 30_000))
    assert shard.whole().processing == {"a:7": NOW + 30_000}


def test_leases_are_extended_when_memory_is_full(shard: Shard) -> None:
    """Otherwise every running task would be run again while nobody can schedule more."""
    shard.seed(State(processing={"a:7": NOW}))
    with shard.full_memory():
        assert shard.run(shard.commands.extend(0, [b"a:7"], 30_000)) == set()
    assert shard.whole().processing == {"a:7": NOW + 30_000}
