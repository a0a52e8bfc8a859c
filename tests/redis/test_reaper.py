"""The reaper's services, step by step, on a real Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest
from delayq.connection import Address, AsyncConnection
from delayq.contract import parse
from delayq.errors import GuardBusy, GuardUnavailable
from delayq.protocol.commands import BATCH, LEASES, Commands
from delayq.protocol.shard_map import ShardMap
from delayq.reaper.guard_retention import GuardRetention
from delayq.reaper.reaper import Reaper, Reconcile, Sweep
from delayq.service.counters import ProcessCounters
from delayq.service.shard_groups import ShardGroup

from tests.redis.state import NOW, Shard, State, envelope, seed, shard_on, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract import Spec
    from delayq.protocol.commands import Call
    from delayq.protocol.results import LostTask, RestoredOrphans, TaskRow
    from delayq.protocol.results import State as In

    from tests.topologies.kinds import Servers

LATER = NOW + 60_000
T = TypeVar("T")


def spec(**retention: int) -> Spec:
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": "q"},
        "spec": {
            "redis": {"standalone": {"host": "unused"}},
            "handler": {"exec": {"command": ["true"]}},
            "retention": retention,
        },
    }
    return parse(document).spec


async def one_walk(shard: Shard, url: str) -> Reconcile:
    connection = AsyncConnection(Address.from_url(url))
    reconcile = Reconcile(shard.commands, connection, spec())
    while reconcile.walks == 0:
        await reconcile.step()
    await connection.close()
    return reconcile


async def test_a_page_that_took_long_is_followed_by_a_longer_pause(shard: Shard, redis_url: str) -> None:
    """Large tasks, or a machine that is busy: reconciliation takes a fifth of Redis' time at most."""

    class Slow(AsyncConnection):
        async def one(self, call: Call[T]) -> T:
            await asyncio.sleep(0.1)
            return await super().one(call)

    connection = Slow(Address.from_url(redis_url))
    shard.seed(State(delayed={f"t{n}": LATER for n in range(600)}))
    assert await Reconcile(shard.commands, connection, spec()).step() >= 0.35
    await connection.close()


async def test_one_walk_adopts_what_is_nowhere_and_leaves_what_is_leased(
    shard: Shard, redis_url: str
) -> None:
    leases = {f"leased-{n}:{n + 1}": LATER for n in range(600)}
    tasks = {member.rpartition(":")[0]: envelope() for member in leases} | {"lost": envelope()}
    before = shard.seed(State(processing=leases, tasks=tasks))
    reconcile = await one_walk(shard, redis_url)
    assert reconcile.repaired == {"adopted": 1}
    assert shard.whole() == before.but(delayed={"lost": NOW}, wake=1, stats={"adopted": 1})


async def test_adopt_is_asked_about_few_tasks_at_a_time_and_never_about_leased_ones(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is not UTF-8 reads the same among the leases as among the tasks."""
    shard.seed(State(tasks={f"lost-{n}": envelope() for n in range(25)}))
    with shard.server.client() as redis:
        redis.zadd(shard.keys.processing, {b"\xff\xfe:7": LATER})
        redis.hset(shard.keys.tasks, b"\xff\xfe", envelope())
    asked: list[list[bytes]] = []
    adopt = shard.commands.restore_orphans

    def recorded(at: int, lost: Sequence[LostTask], cursor: str) -> Call[RestoredOrphans]:
        asked.append([each.id for each in lost])
        return adopt(at, lost, cursor)

    monkeypatch.setattr(shard.commands, "restore_orphans", recorded)
    reconcile = await one_walk(shard, redis_url)
    assert reconcile.repaired == {"adopted": 25}
    assert [len(ids) for ids in asked] == [10, 10, 5]
    assert b"\xff\xfe" not in [task_id for ids in asked for task_id in ids]


async def test_a_lost_task_is_adopted_though_its_id_is_not_utf8(shard: Shard, redis_url: str) -> None:
    with shard.server.client() as redis:
        redis.hset(shard.keys.tasks, b"\xff", envelope())
        assert (await one_walk(shard, redis_url)).repaired == {"adopted": 1}
        assert redis.zscore(shard.keys.delayed, b"\xff") == NOW


async def test_leases_that_one_reading_skips_are_seen_by_the_other(
    shard: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are settled while they are read: the first of the next page moves to a rank that was read already."""
    leases = {f"leased-{n:03}:{n + 1}": LATER + n for n in range(BATCH + 1)}
    shard.seed(State(processing=leases))
    asked: list[Sequence[LostTask]] = []
    rows, adopt = shard.commands.list, shard.commands.restore_orphans

    def settling(at: int, state: In, *, offset: int, limit: int) -> Call[list[TaskRow]]:
        if offset:
            shard.run(shard.commands.ack(0, [b"leased-000:1"]))
        return rows(at, state, offset=offset, limit=limit)

    def recorded(at: int, lost: Sequence[LostTask], cursor: str) -> Call[RestoredOrphans]:
        asked.append(lost)
        return adopt(at, lost, cursor)

    monkeypatch.setattr(shard.commands, "list", settling)
    monkeypatch.setattr(shard.commands, "restore_orphans", recorded)
    assert (await one_walk(shard, redis_url)).repaired == {}
    assert asked == []


async def test_a_walk_adopts_beside_more_leases_than_a_call_looks_at(shard: Shard, redis_url: str) -> None:
    leases = {f"leased-{n}:{n + 1}": LATER for n in range(2 * LEASES)}
    tasks = {member.rpartition(":")[0]: envelope() for member in leases} | {"lost": envelope()}
    before = shard.seed(State(processing=leases, tasks=tasks))
    assert (await one_walk(shard, redis_url)).repaired == {"adopted": 1}
    assert shard.whole() == before.but(delayed={"lost": NOW}, wake=1, stats={"adopted": 1})


async def test_with_more_shards_than_letters_to_keep_each_shard_keeps_one(
    shard: Shard, redis_url: str
) -> None:
    dead = {"a": NOW - 2000, "b": NOW - 1000}
    shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))
    connection = AsyncConnection(Address.from_url(redis_url))
    commands = Commands(shard.commands.queue)
    commands.follow(ShardMap.first(256))
    sweep = Sweep(commands, connection, spec(deadLetterCount=100))
    await sweep.step()
    await connection.close()
    assert set(shard.whole().dlq) == {"b"}


@pytest.mark.parametrize(
    "shard_map",
    [ShardMap(2, 1, 1, 4, 4), ShardMap(3, 4, 1, 4, 4), ShardMap(3, 1, 4, 1, 4), ShardMap.guess(4)],
    ids=str,
)
async def test_a_shard_that_may_hold_all_dead_letters_keeps_as_many_as_the_queue(
    shard: Shard, redis_url: str, shard_map: ShardMap
) -> None:
    """More shards that are announced hold nothing yet; what the document says may be neither."""
    dead = {f"d{nth}": NOW - 9 + nth for nth in range(9)}
    before = shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))
    connection, commands = AsyncConnection(Address.from_url(redis_url)), Commands(shard.commands.queue)
    commands.follow(shard_map)
    keeps, prunes = (Sweep(commands, connection, spec(deadLetterCount=most)) for most in (9, 8))
    await keeps.step()
    assert shard.whole() == before
    await prunes.step()
    await connection.close()
    assert set(shard.whole().dlq) == dead.keys() - {"d0"}


async def test_who_slept_while_shards_went_purges_nothing_before_it_knows(
    shard: Shard, redis_url: str
) -> None:
    """One shard has all dead letters by now, and not its part of an eighth."""
    dead = {f"d{nth}": NOW - 9 + nth for nth in range(9)}
    shard.commands.follow(ShardMap(9, 1, 1, 1, 8))
    shard.run(shard.commands.sync_shard_map(0, shard.commands.shard_map))
    before = shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))
    connection, commands = AsyncConnection(Address.from_url(redis_url)), Commands(shard.commands.queue)
    commands.follow(ShardMap(5, 8, 8, 8, 8))
    sweep = Sweep(commands, connection, spec(deadLetterCount=8))
    await sweep.step()
    assert shard.whole() == before
    assert commands.shard_map == shard.commands.shard_map
    await sweep.step()
    await connection.close()
    assert set(shard.whole().dlq) == dead.keys() - {"d0"}


async def test_a_sweep_purges_dead_letters_that_are_too_old_or_too_many(shard: Shard, redis_url: str) -> None:
    dead = {"old": NOW - 61_000, "a": NOW - 3000, "b": NOW - 2000, "c": NOW - 1000}
    shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))
    connection = AsyncConnection(Address.from_url(redis_url))
    sweep = Sweep(shard.commands, connection, spec(deadLetterRetentionSeconds=60, deadLetterCount=2))
    await sweep.step()
    await connection.close()
    assert set(shard.whole().dlq) == {"b", "c"}
    assert sweep.done == {"purged": 2}


@pytest.mark.parametrize(
    "retention", [{"deadLetterRetentionSeconds": 60}, {"deadLetterCount": 1}], ids=["old", "many"]
)
async def test_a_dead_letter_that_was_redriven_and_died_again_since_it_was_listed_is_kept(
    shard: Shard, redis_url: str, retention: dict[str, int]
) -> None:
    dead = {"old": NOW - 61_000, "older": NOW - 62_000, "new": NOW - 1}
    before = shard.seed(State(dlq=dead, dlq_info=dict.fromkeys(dead, "1 0 buried x")))

    class Slow(AsyncConnection):
        async def one(self, call: Call[T]) -> T:
            if call.script.name == "purge":
                shard.redis.zadd(shard.keys.dlq, {"old": NOW})
            return await super().one(call)

    connection = Slow(Address.from_url(redis_url))
    await Sweep(shard.commands, connection, spec(**retention)).step()
    await connection.close()
    left = {"old": NOW, "new": NOW - 1}
    assert shard.whole() == before.without(
        "older", dlq=left, dlq_info=dict.fromkeys(left, "1 0 buried x"), stats={"purged": 1}
    )


async def test_a_sweep_shortens_leases_after_the_clock_stepped_back(shard: Shard, redis_url: str) -> None:
    """There may be no scanner: without any, tasks of a dead worker would wait for as long as the step."""
    lease_ms = spec().delivery.lease_duration_seconds * 1000
    connection = AsyncConnection(Address.from_url(redis_url))
    await Sweep(shard.commands, connection, spec()).step()
    before = shard.seed(State(processing={"a:7": NOW + lease_ms}))
    shard.clock(NOW - 3_600_000)
    await Sweep(shard.commands, connection, spec()).step()  # another one: reapers live for a minute
    await connection.close()
    assert shard.whole() == before.but(processing={"a:7": NOW - 3_600_000 + lease_ms})


@pytest.mark.parametrize("apart", [False, True])
async def test_leases_that_a_fail_over_left_in_a_dropped_shard_are_taken_back(
    redis_server: Servers, queue_name: str, *, apart: bool
) -> None:
    with shard_on(redis_server, queue_name, 3) as shards:
        keys, redis = shards.commands.shards[2], shards.redises[2]
        seed(redis, keys, State(processing={"a:7": NOW - 1}))
        commands, connection = Commands(queue_name), AsyncConnection(Address.from_url(redis_server.url))
        commands.follow(ShardMap(9, 1, 1, 1, 3))
        await Sweep(commands, connection, spec(), group=ShardGroup(commands, 0 if apart else None)).step()
        await connection.close()
        assert whole(redis, keys).suspect == {"a": 7}
        assert not redis.exists(shards.commands.shards[1].cursors), "an empty one stays empty"


async def test_a_sweep_takes_back_leases_that_ran_out(shard: Shard, redis_url: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW - 1, "b:8": LATER}))
    connection = AsyncConnection(Address.from_url(redis_url))
    await Sweep(shard.commands, connection, spec()).step()
    await connection.close()
    assert shard.whole() == before.but(
        processing={"b:8": LATER},
        suspect={"a": 7},
        attempts={"a": "0 1 "},
        wake=1,
        stats={"reclaimed": 1},
    )


async def test_one_pass_does_all_there_is_to_do_and_ends(shard: Shard, redis_url: str) -> None:
    """More leases than a call takes back, more dead letters than a page, and a task that is in no index."""
    leases = {f"leased-{n}:{n + 1}": NOW - 1 for n in range(250)}
    dead = {f"dead-{n:04}": NOW - 2000 + n for n in range(BATCH + 50)}
    held = {member.rpartition(":")[0]: envelope() for member in leases}
    shard.seed(
        State(
            processing=leases,
            tasks=held | dict.fromkeys(dead, envelope()) | {"lost": envelope()},
            dlq=dead,
            dlq_info=dict.fromkeys(dead, "1 0 buried x"),
        )
    )
    reaper = Reaper(spec(deadLetterCount=3), shard.commands, Address.from_url(redis_url), once=True)
    async with asyncio.timeout(60):
        await reaper.run(asyncio.Event(), asyncio.Event())
    after = shard.whole()
    assert after.suspect.keys() == held.keys()
    assert (after.processing, after.delayed) == ({}, {"lost": NOW})
    assert after.dlq.keys() == set(sorted(dead)[-3:])


async def test_a_sweep_goes_on_past_a_shard_whose_key_is_somebody_elses(shard: Shard, redis_url: str) -> None:
    commands = Commands(shard.commands.queue, shards=3)
    first, other, last = commands.shards
    shard.server.on(other).set(other.processing, "not ours")
    for keys in (first, last):
        seed(shard.server.on(keys), keys, State(processing={"a:7": NOW - 1}))
    connection = AsyncConnection(Address.from_url(redis_url))
    sweep = Sweep(commands, connection, spec())
    async with asyncio.timeout(
        30
    ):  # it leaves leases alone for a while after it connected to a node for the first time
        while [shard.server.on(keys).zcard(keys.suspect) for keys in (first, last)] != [1, 1]:
            await sweep.step()
            await asyncio.sleep(0.05)
    await connection.close()


async def test_where_a_check_is_to_be_asked_a_sweep_leaves_leases_alone(shard: Shard, redis_url: str) -> None:
    before = shard.seed(State(processing={"a:7": NOW - 1}))
    connection = AsyncConnection(Address.from_url(redis_url))
    await Sweep(shard.commands, connection, spec(), reclaims=False).step()
    await connection.close()
    assert shard.whole() == before


class Rows:
    """A guard's ledger that answers as told."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)

    async def prune(self) -> int:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass


async def test_a_guards_rows_are_forgotten_batch_by_batch_and_then_after_each_sweep() -> None:
    counters = ProcessCounters("reaper", "q")
    prune = GuardRetention(Rows(500, 20, 0, GuardBusy("all connections in use"), 3), spec(), counters)
    pauses = [await prune.step() for _ in range(5)]
    assert pauses == [0.1, 0.1, 5.0, 5.0, 0.1]
    assert prune.done == {"forgotten": 523}
    assert counters.loop_errors == {}


async def test_a_database_that_is_down_is_told_once_counted_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It never ends the sweep, nor makes the reaper look broken."""
    down = GuardUnavailable("db:5432", "refused")
    counters = ProcessCounters("reaper", "q")
    prune = GuardRetention(Rows(down, down, 7, down), spec(), counters)
    assert [await prune.step() for _ in range(4)] == [5.0, 5.0, 0.1, 5.0]
    assert counters.loop_errors == {"guard_retention": 3}
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["guard_prune_failed", "guard_prune_failed"]
