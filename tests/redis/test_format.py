"""A shard of a newer format: it is used, and not repaired, moved or erased."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import FormatTooNew
from delayq.protocol import scripts
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import BatchOutOfOrder, LostTask, MigratingTask
from delayq.protocol.shard_map import ShardMap
from delayq.reaper.eraser import Erase
from delayq.reaper.reaper import INDEXES, Reconcile
from delayq.reaper.size_audit import SizeAudit

from tests.redis.state import NOW, PLENTY, Shard, State, envelope, seed, shard_on, whole
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call, Commands
    from delayq.protocol.scripts import Argument

    from tests.topologies.kinds import Servers

LATER = NOW + 60_000
NEWER = FORMAT + 1
# "held" is in no index that this version knows, and "ghost" in no hash; "late" has a lease that ran out.
DAMAGED = State(
    delayed={"a": LATER, "ghost": LATER},
    processing={"late:7": NOW - 1},
    tasks={name: envelope(LATER) for name in ("a", "held", "late")},
    stats={"format": NEWER},
)
REFUSED: dict[str, Callable[[Commands], Call[Any]]] = {
    **{
        f"reconcile {name}": lambda b, name=name: b.reconcile(0, name, 0)  # type: ignore[misc]
        for name in INDEXES
    },
    "restore_orphans": lambda b: b.restore_orphans(0, [LostTask(b"held")]),
    "audit_size": lambda b: b.audit_size(0),
    "erase": lambda b: b.erase(0),
    "migrate_done": lambda b: b.migrate_done(0),
    "migrate_out": lambda b: b.migrate_out(0, [b"a"], near_ms=1),
    "migrate_in": lambda b: b.migrate_in(
        0, 1, 7, [MigratingTask(0, (b"id", b"retry", b"9", b"body", b"1 0 ", b""))]
    ),
    "migrate_retoken": lambda b: b.migrate_retoken(0, 7, 1, BatchOutOfOrder(9)),
    "migrate_verify": lambda b: b.migrate_verify(0, 1, 7),
    "migrate_commit": lambda b: b.migrate_commit(0, 7),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_what_a_newer_delayq_may_hold_elsewhere_is_left_as_it_is(shard: Shard, verb: str) -> None:
    before = shard.seed(DAMAGED)
    with pytest.raises(FormatTooNew, match=f"in format {NEWER}, and this one knows formats up to {FORMAT};"):
        shard.run(REFUSED[verb](shard.commands))
    assert shard.whole() == before


def test_a_dropped_shard_hears_of_the_shard_map_and_keeps_its_keys(shard: Shard) -> None:
    shard.redis.hset(shard.keys.stats, "format", NEWER)
    shard.redis.hset(shard.keys.cursors, "new", 1)
    shard.commands.use_shard_map(ShardMap.first(1))
    assert shard.run(shard.commands.retire_shard(0)).shard_map == shard.commands.shard_map
    assert shard.redis.hgetall(shard.keys.cursors) == {b"new": b"1"}


def test_tasks_are_stored_run_and_settled_as_ever(shard: Shard) -> None:
    """Both versions serve the queue during an upgrade; counts name the format, and no counter of that name."""
    before = shard.seed(DAMAGED)
    flat: list[Argument] = ["b", "+0", envelope()[:-6]]
    shard.run(shard.commands.schedule(0, flat, if_exists="keep", repeated=0, **PLENTY))
    [lease] = shard.run(shard.commands.claim(0, 9, 1000)).leases
    shard.run(shard.commands.ack(0, [lease.member]))
    assert shard.run(shard.commands.reclaim(0, max_crashes=9)) == [("late:7", "reclaimed")]
    after, counted = shard.whole(), shard.run(shard.commands.counts(0))
    assert after.delayed == before.delayed
    assert (list(after.suspect), after.stats["format"]) == (["late"], NEWER)
    assert (counted.format, "format" in counted.stats) == (NEWER, False)


def test_the_format_never_falls(shard: Shard) -> None:
    """What a script calls that writes what only a newer format has. A format that is no number is the first."""
    shard.redis.hset(shard.keys.stats, "format", "x")
    assert shard.run(shard.commands.audit_size(0)).off == 0
    shard.redis.hdel(shard.keys.stats, "format")
    for needed, found in ((1, None), (3, b"3"), (2, b"3")):
        shard.redis.eval(scripts.prelude() + f"\nrequire_format(KEYS[1], {needed})", 1, shard.keys.stats)
        assert shard.redis.hget(shard.keys.stats, "format") == found


@pytest.fixture
def pair(redis_server: Servers, queue_name: str) -> Iterator[Shard]:
    """Two shards, of which the first has a newer format."""
    with shard_on(redis_server, queue_name, 2) as pair:
        for keys, redis in zip(pair.commands.shards, pair.redises, strict=True):
            seed(redis, keys, DAMAGED.but(stats={"format": NEWER} if keys.shard == 0 else {}))
        yield pair


async def test_a_reaper_says_so_and_looks_after_the_other_shards(
    pair: Shard, connection: AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    reconcile, weighing = Reconcile(pair.commands, connection, spec()), SizeAudit(pair.commands, connection)
    while not (reconcile.repaired["adopted"] and reconcile.repaired["pruned"]):
        await reconcile.step()
    for _ in range(4):
        await weighing.step()
    first, second = (
        whole(redis, keys) for keys, redis in zip(pair.commands.shards, pair.redises, strict=True)
    )
    assert first == DAMAGED
    assert second.delayed == {"a": LATER, "held": LATER}
    refused = [record for record in caplog.records if record.message == "shard_refused"]
    assert {record.fields["loop"] for record in refused} == {"reconcile", "size_audit"}  # type: ignore[attr-defined]


async def test_a_queue_is_not_erased_in_part(pair: Shard, connection: AsyncConnection) -> None:
    erase = Erase(pair.commands, connection, patience_seconds=9)
    with pytest.raises(FormatTooNew, match="is not erased"):
        await erase.step()
    assert erase.ended.is_set()
    assert isinstance(erase.error, FormatTooNew)
    assert whole(pair.redises[1], pair.commands.shards[1]).delayed == DAMAGED.delayed
