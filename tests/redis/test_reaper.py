"""The reaper's services, step by step, on a real Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest
from delayq.connection import Address
from delayq.errors import GuardBusy, GuardUnavailable
from delayq.protocol.commands import BATCH, LEASES, START, Commands
from delayq.protocol.shard_map import ShardMap
from delayq.reaper.guard_retention import GuardRetention
from delayq.reaper.reaper import Reaper, Reconcile, Sweep
from delayq.service.counters import ProcessCounters
from delayq.service.shard_groups import ShardGroup

from tests.redis.state import NOW, Shard, State, envelope, seed, shard_on, whole
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.connection import AsyncConnection
    from delayq.contract import Spec
    from delayq.protocol.commands import Call
    from delayq.protocol.results import ListPage, LostTask, Position, RestoredOrphans
    from delayq.protocol.results import State as In

    from tests.topologies.kinds import Servers

LATER = NOW + 60_000
T = TypeVar("T")


def spec(**retention: object) -> Spec:
    return document({"exec": {"command": ["true"]}}, retention=retention).spec


async def one_walk(shard: Shard, connection: AsyncConnection) -> Reconcile:
    reconcile = Reconcile(shard.commands, connection)
    while reconcile.walks == 0:
        await reconcile.step()
    return reconcile


def dead(scores: Mapping[str, int]) -> State:
    return State(dlq=scores, dlq_info=dict.fromkeys(scores, "1 0 buried x"))


def recorded(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The ids that each call of restore_orphans is asked about."""
    asked: list[list[bytes]] = []
    restore = shard.commands.restore_orphans

    def recording(at: int, lost: Sequence[LostTask], cursor: str) -> Call[RestoredOrphans]:
        asked.append([each.id for each in lost])
        return restore(at, lost, cursor)

    monkeypatch.setattr(shard.commands, "restore_orphans", recording)
    return asked


async def test_one_walk_restores_orphans_and_searches_leases_for_no_leased_task(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few tasks at a time, beside more leases than a call looks at. Ids need not be UTF-8."""
    leases = {f"leased-{n}:{n + 1}": LATER for n in range(2 * LEASES)}
    lost = [b"\xff", *(b"lost-%d" % n for n in range(24))]
    tasks = {member.rpartition(":")[0]: envelope() for member in leases}
    shard.seed(State(processing=leases, tasks=tasks))
    shard.redis.zadd(shard.keys.processing, {b"\xff\xfe:7": LATER})
    shard.redis.hset(shard.keys.tasks, mapping=dict.fromkeys([b"\xff\xfe", *lost], envelope()))
    asked = recorded(shard, monkeypatch)
    assert (await one_walk(shard, connection)).repaired == {"adopted": 25}
    assert sorted(shard.redis.zrange(shard.keys.delayed, 0, -1)) == sorted(lost)
    assert max(map(len, asked)) == 10
    assert {task_id for ids in asked for task_id in ids} == set(lost)


async def test_no_lease_is_skipped_when_others_are_settled_while_leases_are_read(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lease of the next page then has a rank that was read already."""
    shard.seed(State(processing={f"leased-{n:03}:{n + 1}": LATER + n for n in range(BATCH + 1)}))
    rows, asked = shard.commands.list, recorded(shard, monkeypatch)

    def settling(at: int, state: In, *, after: Position, limit: int, kinds: bool) -> Call[ListPage]:
        if after is not START:
            shard.run(shard.commands.ack(0, [b"leased-000:1"]))
        return rows(at, state, after=after, limit=limit, kinds=kinds)

    monkeypatch.setattr(shard.commands, "list", settling)
    assert (await one_walk(shard, connection)).repaired == {}
    assert asked == []


async def test_a_page_that_took_long_is_followed_by_a_longer_pause(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tasks, or a machine that is busy: reconciliation takes a fifth of Redis' time at most."""
    one = connection.one

    async def slow(call: Call[T]) -> T:
        await asyncio.sleep(0.1)
        return await one(call)

    monkeypatch.setattr(connection, "one", slow)
    shard.seed(State(delayed={f"t{n}": LATER for n in range(600)}))
    assert await Reconcile(shard.commands, connection).step() >= 0.35


@pytest.mark.parametrize(
    ("shard_map", "most", "kept"),
    [
        (ShardMap(2, 1, 1, 4, 4), 9, 9),
        (ShardMap(2, 1, 1, 4, 4), 8, 8),  # shards that are announced hold nothing yet
        (ShardMap(3, 4, 1, 4, 4), 8, 8),
        (ShardMap(3, 1, 4, 1, 4), 8, 8),
        (ShardMap.assumed(4), 8, 8),  # what the document says may not be so
        (ShardMap.first(4), 8, 2),
        (ShardMap.first(16), 8, 1),
    ],
    ids=str,
)
async def test_a_shard_that_may_hold_all_dead_letters_keeps_as_many_as_the_queue_and_else_its_part(
    shard: Shard, connection: AsyncConnection, *, shard_map: ShardMap, most: int, kept: int
) -> None:
    """With more shards than letters to keep, each shard keeps one."""
    before = shard.seed(dead({f"d{nth}": NOW - 9 + nth for nth in range(9)}))
    commands = Commands(shard.commands.queue)
    commands.use_shard_map(shard_map)
    await Sweep(commands, connection, spec(deadLetters={"count": most})).step()
    assert list(shard.whole().dlq) == list(before.dlq)[-kept:]


async def test_a_reaper_with_an_old_shard_map_purges_nothing_before_it_has_the_new_one(
    shard: Shard, connection: AsyncConnection
) -> None:
    """By now one shard has all dead letters, and not an eighth of them."""
    shard.commands.use_shard_map(ShardMap(9, 1, 1, 1, 8))
    shard.run(shard.commands.sync_shard_map(0, shard.commands.shard_map))
    before = shard.seed(dead({f"d{nth}": NOW - 9 + nth for nth in range(9)}))
    commands = Commands(shard.commands.queue)
    commands.use_shard_map(ShardMap(5, 8, 8, 8, 8))
    sweep = Sweep(commands, connection, spec(deadLetters={"count": 8}))
    await sweep.step()
    assert shard.whole() == before
    assert commands.shard_map == shard.commands.shard_map
    await sweep.step()
    assert list(shard.whole().dlq) == list(before.dlq)[1:]


@pytest.mark.parametrize(
    "retention", [{"deadLetters": {"seconds": 60}}, {"deadLetters": {"count": 1}}], ids=["old", "many"]
)
async def test_a_dead_letter_that_was_redriven_and_died_again_since_it_was_listed_is_kept(
    shard: Shard, connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, retention: dict[str, int]
) -> None:
    before = shard.seed(dead({"old": NOW - 61_000, "older": NOW - 62_000, "new": NOW - 1}))
    one = connection.one

    async def late(call: Call[T]) -> T:
        if call.script.name == "purge":
            shard.redis.zadd(shard.keys.dlq, {"old": NOW})
        return await one(call)

    monkeypatch.setattr(connection, "one", late)
    sweep = Sweep(shard.commands, connection, spec(**retention))
    await sweep.step()
    left = dead({"old": NOW, "new": NOW - 1})
    assert shard.whole() == before.without("older", dlq=left.dlq, dlq_info=left.dlq_info, stats={"purged": 1})
    assert sweep.done == {"purged": 1}


async def test_a_sweep_shortens_leases_after_the_clock_stepped_back(
    shard: Shard, connection: AsyncConnection
) -> None:
    """There may be no scanner: without any, tasks of a dead worker would wait for as long as the step."""
    lease_ms = spec().delivery.lease_duration_seconds * 1000
    await Sweep(shard.commands, connection, spec()).step()
    before = shard.seed(State(processing={"a:7": NOW + lease_ms}))
    shard.clock(NOW - 3_600_000)
    await Sweep(shard.commands, connection, spec()).step()  # another one: reapers live for a minute
    assert shard.whole() == before.but(processing={"a:7": NOW - 3_600_000 + lease_ms})


@pytest.mark.parametrize("reclaims", [True, False])
async def test_a_sweep_reclaims_expired_leases_unless_there_is_a_check(
    shard: Shard, connection: AsyncConnection, *, reclaims: bool
) -> None:
    before = shard.seed(
        State(processing={"a:7": NOW - 1, "b:8": NOW + 10**10}, tasks={"a": envelope(), "b": envelope()})
    )
    await Sweep(shard.commands, connection, spec(), reclaims=reclaims).step()
    assert shard.whole().suspect == ({"a": 7} if reclaims else {})
    assert reclaims or shard.whole() == before


@pytest.mark.parametrize("apart", [False, True])
async def test_leases_that_a_fail_over_left_in_a_dropped_shard_are_reclaimed(
    redis_server: Servers, queue_name: str, connection: AsyncConnection, *, apart: bool
) -> None:
    with shard_on(redis_server, queue_name, 3) as shards:
        keys, redis = shards.commands.shards[2], shards.redises[2]
        seed(redis, keys, State(processing={"a:7": NOW - 1}))
        commands = Commands(queue_name)
        commands.use_shard_map(ShardMap(9, 1, 1, 1, 3))
        await Sweep(commands, connection, spec(), group=ShardGroup(commands, 0 if apart else None)).step()
        assert whole(redis, keys).suspect == {"a": 7}
        assert not redis.exists(shards.commands.shards[1].cursors), "an empty one stays empty"


async def test_one_pass_does_all_the_work_and_ends(shard: Shard, redis_url: str) -> None:
    """More leases than a call takes back, more dead letters than a page, and a task that is in no index."""
    leases = {f"leased-{n}:{n + 1}": NOW - 1 for n in range(250)}
    letters = dead({f"dead-{n:04}": NOW - 2000 + n for n in range(BATCH + 50)})
    held = {member.rpartition(":")[0]: envelope() for member in leases}
    tasks = {**held, **letters.envelopes, "lost": envelope()}
    shard.seed(letters.but(processing=leases, tasks=tasks))
    reaper = Reaper(spec(deadLetters={"count": 3}), shard.commands, Address.from_url(redis_url), once=True)
    async with asyncio.timeout(60):
        await reaper.run(asyncio.Event(), asyncio.Event())
    after = shard.whole()
    assert after.suspect.keys() == held.keys()
    assert (after.processing, after.delayed) == ({}, {"lost": NOW})
    assert after.dlq.keys() == set(sorted(letters.dlq)[-3:])


async def test_a_sweep_continues_after_a_shard_with_a_key_of_the_wrong_type(
    shard: Shard, connection: AsyncConnection
) -> None:
    """It does not reclaim for a while after it connected to a node for the first time."""
    commands = Commands(shard.commands.queue, shards=3)
    first, other, last = commands.shards
    shard.server.on(other).set(other.processing, "not ours")
    for keys in (first, last):
        seed(shard.server.on(keys), keys, State(processing={"a:7": NOW - 1}))
    sweep = Sweep(commands, connection, spec())
    async with asyncio.timeout(30):
        while [shard.server.on(keys).zcard(keys.suspect) for keys in (first, last)] != [1, 1]:
            await sweep.step()
            await asyncio.sleep(0.05)


class Rows:
    """A guard's ledger with given answers."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)

    async def prune(self) -> int:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass


async def test_guard_rows_are_deleted_in_batches_and_a_database_that_is_down_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An outage never ends the sweep, nor makes the reaper look broken; it is logged once, and counted each time."""
    down = GuardUnavailable("db:5432", "refused")
    counters = ProcessCounters("reaper", "q")
    ledger = Rows(500, 20, 0, GuardBusy("all connections in use"), down, down, 3, down)
    prune = GuardRetention(ledger, counters)
    assert [await prune.step() for _ in range(8)] == [0.1, 0.1, 5.0, 5.0, 5.0, 5.0, 0.1, 5.0]
    assert (prune.done, counters.loop_errors) == ({"forgotten": 523}, {"guard_retention": 3})
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["guard_prune_failed", "guard_prune_failed"]
