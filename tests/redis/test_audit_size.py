"""audit_size: the counter of bytes is corrected when it was lost, and never changed when it is right."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import DelayQError
from delayq.protocol.envelope import encode
from delayq.reaper.size_audit import REST_SECONDS, SizeAudit

from tests.redis.state import NOW, PLENTY, Shard, State, weight, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.connection import AsyncConnection


def walk(shard: Shard, count: int = 1000) -> Iterator[int]:
    """Audit page after page; yields by how much the counter was wrong."""
    while True:
        page = shard.run(shard.commands.audit_size(0, count=count))
        yield page.off
        if not page.cursor:
            return


def put(shard: Shard, *names: str, size: int = 100) -> None:
    """Large enough for a hash that is walked in pages."""
    body = encode(b"x" * size, None, None)[0]
    flat = [item for name in names for item in (name, "+0", body)]
    options: dict[str, Any] = {"if_exists": "replace", "repeated": 0, **PLENTY}
    shard.run(shard.commands.schedule(0, flat, **options))


def counter(shard: Shard) -> int:
    return int(shard.redis.hget(shard.keys.stats, "bytes") or 0)


def exact(shard: Shard) -> int:
    held: dict[Any, Any] = shard.redis.hgetall(shard.keys.tasks)
    return weight({name.decode(): envelope for name, envelope in held.items()})


@pytest.mark.parametrize("wrong", [None, -5, 10**15])
def test_a_quiet_walk_corrects_any_counter_to_the_byte(shard: Shard, wrong: int | None) -> None:
    """A queue of an older delayq has no counter."""
    before = shard.seed(State(delayed={f"t{n}": NOW for n in range(300)}, dlq={"ü-漢": NOW}))
    shard.redis.hdel(shard.keys.stats, "bytes")
    if wrong is not None:
        shard.redis.hset(shard.keys.stats, "bytes", wrong)
    assert sum(walk(shard, 10)) == weight(before.envelopes) - (wrong or 0)
    assert shard.whole() == before
    assert set(walk(shard, 10)) == {0}


def test_a_walk_begins_anew_on_another_server(shard: Shard) -> None:
    """After a restart or a fail-over the cursor is invalid: tasks that it skips would not be counted."""
    put(shard, *(f"t{n}" for n in range(600)))
    right = counter(shard)
    shard.run(shard.commands.audit_size(0, count=50))
    noted: Any = shard.redis.hget(shard.keys.cursors, "audit_size")
    run, cursor, *rest = noted.decode().split(" ")
    assert run == shard.redis.info("server")["run_id"]
    shard.redis.hset(shard.keys.cursors, "audit_size", " ".join(["b" * 40, cursor, "123456789", *rest[1:]]))
    assert set(walk(shard, 50)) == {0}
    assert counter(shard) == right == exact(shard)


def test_a_counter_that_is_right_stays_right_and_one_that_was_lost_gets_closer(
    shard: Shard,
) -> None:
    """Tasks come, go and are replaced by larger and smaller ones, and the hash grows and shrinks meanwhile.

    A lost counter stays wrong by no more than what came and went during the walk, and by nothing once nothing does.
    """
    chance = random.Random(1)

    def busy_walk(most: int) -> list[int]:
        found = []
        for off in walk(shard, 100):
            found.append(off)
            put(
                shard,
                *(f"t{chance.randrange(2000)}" for _ in range(chance.randrange(most))),
                size=chance.randrange(200),
            )
            gone = [f"t{chance.randrange(2000)}" for _ in range(chance.randrange(most))]
            shard.connection.run([shard.commands.cancel(name) for name in gone])
        return found

    put(shard, *(f"t{n}" for n in range(1000)))
    for _ in range(3):
        assert set(busy_walk(200)) == {0}
    assert counter(shard) == exact(shard)
    shard.redis.hset(shard.keys.stats, "bytes", 10)
    lost = exact(shard) - 10
    busy_walk(5)
    assert abs(counter(shard) - exact(shard)) < lost / 5
    list(walk(shard, 100))
    assert counter(shard) == exact(shard)


def test_a_walk_that_lost_its_counters_midway_corrects_nothing(shard: Shard) -> None:
    put(shard, *(f"t{n}" for n in range(500)))
    pages = walk(shard, 50)
    next(pages)
    shard.redis.delete(shard.keys.stats)
    put(shard, "one-more")
    assert set(pages) == {0}
    assert sum(walk(shard, 50)) == exact(shard) - len("one-more") - 107


def test_large_tasks_are_audited_a_few_at_a_time(shard: Shard) -> None:
    """One at a time; Redis skips empty buckets and returns a bucket as a whole: those of Valkey hold up to seven."""
    put(shard, *(f"t{n}" for n in range(30)), size=400_000)
    assert len(list(walk(shard, 1000))) > 30 / 8


@pytest.mark.one_server
async def test_the_reaper_audits_every_shard_and_rests(shard: Shard, connection: AsyncConnection) -> None:
    """A shard that cannot be audited does not stop the others, and a shard without tasks gets no key."""
    shard.commands.use_shard_map(type(shard.commands.shard_map).assumed(4))
    spoilt, *sound, empty = shard.commands.shards
    for keys in sound:
        shard.redis.hset(keys.tasks, f"a{keys.shard}", b"\x11xx" + bytes(6))
    shard.redis.set(spoilt.tasks, "a foreign value")
    weighing, pauses = SizeAudit(shard.commands, connection), [0.0]
    while REST_SECONDS not in pauses:
        with suppress(DelayQError):  # its loop goes on
            pauses.append(await weighing.step())
    for keys in sound:
        assert whole(shard.redis, keys).envelopes.keys() == {f"a{keys.shard}"}
    assert shard.redis.keys(f"*:{empty.shard}}}:*") == []
