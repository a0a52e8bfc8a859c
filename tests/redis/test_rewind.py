"""rewind: after Redis' clock stepped back, no lease lasts longer than a lease."""

from __future__ import annotations

from tests.redis.state import NOW, Shard, State


def test_leases_that_outlive_their_length_are_shortened(shard: Shard) -> None:
    """An hour's step back would hold a crashed worker's tasks for an hour."""
    before = shard.seed(
        State(processing={"a:7": NOW + 3_600_000, "b:8": NOW + 30_001, "c:9": NOW + 30_000, "d:1": NOW})
    )
    assert shard.run(shard.broker.rewind(0, 30_000)) == 2
    shortened = {"a:7": NOW + 30_000, "b:8": NOW + 30_000, "c:9": NOW + 30_000, "d:1": NOW}
    assert shard.whole() == before.but(processing=shortened)


def test_nobody_is_put_off_for_longer_either(shard: Shard) -> None:
    """Until when they are put off, leases of which no worker has given a sign of life stand below zero."""
    before = shard.seed(State(processing={"a:7": -(NOW + 3_600_000), "b:8": -(NOW + 30_000), "c:9": -NOW}))
    assert shard.run(shard.broker.rewind(0, 30_000)) == 1
    assert shard.whole() == before.but(
        processing={"a:7": -(NOW + 30_000), "b:8": -(NOW + 30_000), "c:9": -NOW}
    )


def test_a_second_call_finds_nothing(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW + 3_600_000}))
    shard.run(shard.broker.rewind(0, 30_000))
    assert shard.run(shard.broker.rewind(0, 30_000)) == 0


def test_a_call_is_bounded(shard: Shard) -> None:
    shard.seed(State(processing={f"t{n}:7": NOW + 60_000 + n for n in range(10)}))
    assert shard.run(shard.broker.rewind(0, 30_000, limit=4)) == 4
    assert sum(expiry == NOW + 30_000 for expiry in shard.whole().processing.values()) == 4
    shard.seed(State(processing={"a:7": NOW + 60_000} | {f"t{n}:7": -(NOW + 60_000 + n) for n in range(10)}))
    assert [shard.run(shard.broker.rewind(0, 30_000, limit=4)) for _ in range(4)] == [4, 4, 3, 0]


def test_leases_are_shortened_when_memory_is_full(shard: Shard) -> None:
    shard.seed(State(processing={"a:7": NOW + 3_600_000}))
    with shard.full_memory():
        assert shard.run(shard.broker.rewind(0, 30_000)) == 1
