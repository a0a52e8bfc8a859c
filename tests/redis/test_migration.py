"""migrate_out, _in, _verify, _commit: a batch changes shards, also if calls are repeated, late or lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.client.operations import Operations
from delayq.connection import Address, AsyncConnection
from delayq.contract import Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import BatchOutOfOrder, Cancelled, MigrationBatch, Outcome
from delayq.protocol.shard_map import ShardMap, ShardMapOutdated, TaskMigrating
from delayq.resharding import migration
from delayq.resharding.migration import ShardMigration
from delayq.resharding.migrator import AbandonedMigrations, Migrator
from delayq.service.shard_groups import ShardGroup

from tests.redis.paced import Connection, Operating, Stepping
from tests.redis.state import NOW, Shard, State, envelope, seed, shard_on, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.protocol.commands import Call

    from tests.servers import RedisServer

FAR = NOW + 3_600_000
MOVING = ShardMap(3, 2, 1, 2, 2)
# Of "a" to "h" with two shards: b, c, d and f belong to shard 1; a test of keys.py fixes that.
AWAY = [name for name in "abcdefgh" if MOVING.home(name) == 1]
HERE = [name for name in "abcdefgh" if MOVING.home(name) == 0]
ALL = State(delayed=dict.fromkeys("abcdefgh", FAR))


@pytest.fixture
def pair(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    """Two shards of a queue that had one."""
    with shard_on(redis_server, queue_name, 2) as shard:
        shard.commands.use_shard_map(MOVING)
        yield shard


def at(pair: Shard, shard: int) -> State:
    found = whole(pair.redis, pair.commands.keys(shard))
    counted = {name: count for name, count in found.stats.items() if name in {"moved", "deduplicated"}}
    return found.but(stats=counted, alarm=0, wake=0)


def put(pair: Shard, state: State, shard: int = 0) -> None:
    seed(pair.redis, pair.commands.keys(shard), state)


def migrate_out(pair: Shard, *ids: str, near_ms: int = 60_000) -> MigrationBatch:
    return pair.run(pair.commands.migrate_out(0, [each.encode() for each in ids], near_ms=near_ms))


def migrate_in(pair: Shard, batch: MigrationBatch) -> int:
    new = [
        pair.run(pair.commands.migrate_in(to, 0, batch.token, tasks))
        for to, tasks in batch.by_shard().items()
    ]
    return sum(each for each in new if not isinstance(each, BatchOutOfOrder))


def test_a_task_of_each_state_goes_with_all_that_is_stored_of_it(pair: Shard) -> None:
    first, second, third, *_ = AWAY
    before = State(
        delayed={first: FAR},
        retry={second: FAR + 1},
        dlq={third: NOW - 5},
        tasks={name: envelope(FAR, name) for name in (first, second, third)},
        attempts={second: "1 2 boom"},
        dlq_info={third: "3 0 attempts boom"},
    )
    put(pair, before)
    batch = migrate_out(pair, first, second, third)
    assert migrate_in(pair, batch) == 3
    assert commit(pair, batch) == 3
    assert at(pair, 1) == before
    assert at(pair, 0) == State(stats={"moved": 3})
    weight = sum(len(name) + len(before.envelopes[name]) for name in before.envelopes)
    assert pair.redis.hget(pair.commands.keys(1).stats, "bytes") == b"%d" % weight
    assert pair.redis.exists(pair.commands.keys(0).moving, pair.commands.keys(0).moving_info) == 0


def test_what_is_due_soon_in_flight_or_locked_stays(pair: Shard) -> None:
    soon, flying, locked, far = AWAY[:4]
    put(
        pair,
        State(delayed={soon: NOW + 59_999, locked: FAR, far: NOW + 60_000}, processing={f"{flying}:7": FAR}),
    )
    pair.run(pair.commands.lock(locked, "another", 1000, shard=0))
    batch = migrate_out(pair, soon, flying, locked, far, "gone")
    assert sorted(batch.stay) == sorted(name.encode() for name in (soon, flying, locked))
    assert [task.arguments[0] for task in batch.tasks] == [far.encode()]


def test_what_is_late_for_long_migrates_if_nothing_runs(pair: Shard) -> None:
    """Late tasks of a queue on hold must not delay the migration; those of a working queue run soon, where they are."""
    long_ago, just_now, retried, flying = AWAY[:4]
    delayed = {long_ago: NOW - 60_001, just_now: NOW - 60_000}
    put(pair, State(delayed=delayed, retry={retried: NOW - 99_999}, processing={f"{flying}:7": FAR}))
    assert migrate_out(pair, long_ago, just_now, retried).tasks == []
    pair.redis.delete(pair.commands.keys(0).processing)
    batch = migrate_out(pair, long_ago, just_now, retried)
    assert [task.arguments[0] for task in batch.tasks] == [long_ago.encode(), retried.encode()]
    assert batch.stay == [just_now.encode()]
    migrate_in(pair, batch)
    assert (at(pair, 1).delayed, at(pair, 1).retry) == ({long_ago: NOW - 60_001}, {retried: NOW - 99_999})
    assert pair.redis.lrange(pair.commands.keys(1).wake, 0, -1) == [b"1"]


def test_a_shard_that_is_dropped_keeps_the_shard_map_and_its_counters(pair: Shard) -> None:
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    put(pair, State(delayed={HERE[0]: FAR}), shard=1)
    keys = pair.commands.keys(1)
    for key in (keys.wake, keys.alarm):
        pair.redis.lpush(key, "1")
    for hash_ in (keys.cursors, keys.arrived, keys.stats):
        pair.redis.hset(hash_, "home", 3)
    pair.run(pair.commands.elect(1, "me", "", 9000))
    settled = ShardMap(4, 1, 1, 1, 2)
    pair.commands.use_shard_map(settled)
    reported = pair.run(pair.commands.retire_shard(1))
    assert (reported.shard_map, reported.tasks, pair.redis.exists(keys.cursors)) == (settled, 1, 1), (
        "it holds a task"
    )
    pair.run(pair.commands.cancel(HERE[0], shard=1))
    pair.run(pair.commands.retire_shard(1))
    assert {
        key.decode() if isinstance(key, bytes) else key
        for key in pair.redis.keys(f"*:{{{pair.commands.queue}:1}}:*")
    } == {
        keys.shard_map,
        keys.stats,
    }


def test_a_shard_that_will_come_back_is_not_dropped(pair: Shard) -> None:
    pair.run(pair.commands.sync_shard_map(1, MOVING))
    pair.redis.hset(pair.commands.keys(1).cursors, "home", 3)
    pair.commands.use_shard_map(ShardMap(1, 1, 1, 1, 2))
    assert pair.run(pair.commands.retire_shard(1)).shard_map == MOVING
    assert pair.redis.exists(pair.commands.keys(1).cursors) == 1


def test_too_much_for_one_call_is_left_for_the_next(pair: Shard) -> None:
    large = envelope(FAR, "x" * 150_000)  # two of them are more than a quarter of a mebibyte
    put(pair, State(delayed=dict.fromkeys(AWAY[:3], FAR), tasks=dict.fromkeys(AWAY[:3], large)))
    batch = migrate_out(pair, *AWAY[:3])
    assert (len(batch.tasks), len(batch.later)) == (1, 2)


def test_a_batch_arrives_once_however_often_it_is_sent(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    batch = migrate_out(pair, AWAY[0])
    assert [migrate_in(pair, batch), migrate_in(pair, batch)] == [1, 0]
    pair.run(pair.commands.cancel(AWAY[0]))
    assert migrate_in(pair, batch) == 0
    assert commit(pair, batch) == 1
    assert migrate_in(pair, batch) == 0, "a late copy, after the batch was committed"
    pair.redis.hset(pair.commands.keys(1).arrived, "0", batch.token + 1)
    [tasks] = batch.by_shard().values()
    late = pair.run(pair.commands.migrate_in(1, 0, batch.token, tasks))
    assert isinstance(late, BatchOutOfOrder)
    assert late.last == batch.token + 1, "and a later batch was verified"
    assert pair.run(pair.commands.migrate_retoken(0, batch.token, 1, late)) == 0
    assert at(pair, 1).envelopes == at(pair, 0).envelopes == {}


async def test_a_process_remembers_a_bounded_number_of_tasks_that_stay(
    pair: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another scan finds the others, once those have gone."""
    monkeypatch.setattr("delayq.resharding.migrator.MOST_WAITING", 4)
    put(pair, State(delayed=dict.fromkeys(AWAY, NOW + 5)))
    connection = AsyncConnection(Address.from_url(redis_url))
    mine = Migrator(ShardGroup(pair.commands), connection, led=lambda: {0, 1})
    while 0 not in mine.scans or mine.scans[0].cursor is not None:
        await mine.step()
    scan = mine.scans[0]
    # All four came with one page, and are two too many.
    assert (len(scan.waiting) + len(scan.look_at), scan.too_many, scan.done) == (0, True, False)
    await connection.close()


@pytest.mark.parametrize(
    "name", ["delayed", "retry", "dlq", "tasks", "attempts", "dlq_info", "wake", "alarm", "stats", "arrived"]
)
def test_a_batch_that_meets_a_key_of_the_wrong_type_has_not_arrived(pair: Shard, name: str) -> None:
    """Nothing of it is stored: once the key is repaired, all of it arrives."""
    put(pair, State(delayed=dict.fromkeys(AWAY, FAR)))
    batch, key = migrate_out(pair, *AWAY), getattr(pair.commands.keys(1), name)
    pair.redis.delete(key)
    pair.redis.set(key, "x")
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        migrate_in(pair, batch)
    pair.redis.delete(key)
    assert not pair.run(pair.commands.migrate_verify(1, 0, batch.token))
    assert migrate_in(pair, batch) == len(AWAY)
    assert at(pair, 1).delayed == dict.fromkeys(AWAY, FAR)


@pytest.mark.parametrize("info", ["", "1", "x delayed 5", "1 stats 5", "1 delayed x", "1 delayed nan"])
def test_a_task_with_an_unreadable_destination_stays_and_runs_here(
    pair: Shard, monkeypatch: pytest.MonkeyPatch, info: str
) -> None:
    """When it is due. Other tasks migrate as ever, and entries of `moving` without a task are dropped."""
    monkeypatch.setattr(migration, "KEEP_SECONDS", 0.0)
    put(
        pair,
        State(
            delayed=dict.fromkeys(AWAY[:2], FAR),
            dlq={AWAY[2]: NOW},
            dlq_info={AWAY[2]: "1 0 failures x"},
            tasks=dict.fromkeys(AWAY[:3], envelope(FAR)),
        ),
    )
    batch, keys = migrate_out(pair, *AWAY[:3]), pair.commands.keys(0)
    pair.redis.hset(keys.moving_info, mapping=dict.fromkeys(AWAY[1:3], info))
    pair.redis.zadd(keys.moving, {"ghost": batch.token, "alone": batch.token - 1})
    pair.redis.hset(keys.moving_info, "ghost", "1 delayed 5")
    connection: Any = Connection()
    move = ShardMigration(0, pair.commands, connection)
    migrator = Stepping(pair.run, partial(move.step, scans=False))
    while pair.redis.zcard(keys.moving):
        migrator.whole()
    here, there = at(pair, 0), at(pair, 1)
    assert (here.delayed, set(here.dlq), set(here.envelopes)) == ({AWAY[1]: FAR}, {AWAY[2]}, set(AWAY[1:3]))
    assert there.delayed == {AWAY[0]: FAR}
    assert set(there.envelopes) == {AWAY[0]}
    assert pair.redis.hkeys(keys.moving_info) == []


def test_tokens_rise_for_a_task_that_changes_shards(pair: Shard) -> None:
    """The tokens of its old shard come from a clock that was ahead."""
    ahead = (NOW + 3_600_000) * 1000
    put(pair, State(delayed={AWAY[0]: FAR}))
    pair.redis.hset(pair.commands.keys(0).stats, "token", ahead)
    batch = migrate_out(pair, AWAY[0])
    assert batch.token > ahead
    migrate_in(pair, batch)
    pair.run(pair.commands.reschedule(AWAY[0], "+0", max_delay_ms=FAR, shard=1))
    [lease] = pair.run(pair.commands.claim(1, 1, 10_000)).leases
    assert int(lease.member.rpartition(b":")[2]) > batch.token


@pytest.mark.parametrize("garbage", ["x", "inf", "1e300"])
def test_an_unreadable_last_token_stops_no_migration(pair: Shard, garbage: str) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    for shard in (0, 1):
        pair.redis.hset(pair.commands.keys(shard).stats, mapping={"format": FORMAT, "token": garbage})
    batch = migrate_out(pair, AWAY[0])
    assert migrate_in(pair, batch) == 1
    assert pair.redis.hget(pair.commands.keys(1).stats, "token") == str(batch.token).encode()


def test_a_batch_that_its_shard_lost_brings_no_task_twice(pair: Shard) -> None:
    """A migrator that read it before the fail-over verifies it late; another one sends a later batch again."""
    put(pair, State(delayed={AWAY[0]: FAR}))
    forgotten = migrate_out(pair, AWAY[0])
    migrate_in(pair, forgotten)
    keys = pair.commands.keys(0)
    pair.redis.delete(keys.moving, keys.moving_info)
    pair.redis.zadd(keys.delayed, {AWAY[0]: FAR})
    batch = migrate_out(pair, AWAY[0])
    migrate_in(pair, batch)
    assert commit(pair, batch) == 1
    assert pair.run(pair.commands.cancel(AWAY[0])) is Cancelled.CANCELLED
    assert not pair.run(pair.commands.migrate_verify(1, 0, forgotten.token))
    assert migrate_in(pair, batch) == migrate_in(pair, forgotten) == 0
    assert not at(pair, 1).tasks
    assert pair.redis.hgetall(pair.commands.keys(1).arrived) == {b"0": str(batch.token).encode()}


def test_migrating_dead_letters_take_no_room_of_live_tasks(pair: Shard) -> None:
    put(pair, State(dlq=dict.fromkeys(AWAY, NOW)))
    options: dict[str, Any] = {"if_exists": "reject", "repeated": 0, "max_length": 1, "max_delay_ms": 9}
    migrate_out(pair, *AWAY)
    stored = pair.run(pair.commands.schedule(0, [HERE[0], "+1", b"x", HERE[1], "+1", b"x"], **options))
    assert stored.notes == {1: Outcome.FULL}


def test_of_a_task_that_a_fail_over_left_in_both_shards_the_one_at_home_is_kept(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}, tasks={AWAY[0]: envelope(FAR, "old")}))
    put(pair, State(retry={AWAY[0]: FAR + 1}, tasks={AWAY[0]: envelope(FAR, "new")}), shard=1)
    migrate_in(pair, migrate_out(pair, AWAY[0]))
    after = at(pair, 1)
    assert after.envelopes == {AWAY[0]: envelope(FAR, "new")}
    assert (after.delayed, after.retry) == ({}, {AWAY[0]: FAR + 1})
    assert after.stats["deduplicated"] == 1


def calls_by_id(commands: Commands, live: str, dead: str) -> list[Call[Any]]:
    return [
        commands.cancel(live, shard=0),
        commands.get(live, shard=0),
        commands.reschedule(live, "+5", max_delay_ms=10, shard=0),
        commands.redrive(0, [dead, 0]),
        commands.purge(0, [dead]),
    ]


def test_calls_for_a_migrating_task_are_refused(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}, dlq={AWAY[1]: NOW}))
    batch = migrate_out(pair, *AWAY[:2])
    for call in calls_by_id(pair.commands, *AWAY[:2]):
        with pytest.raises(TaskMigrating):
            pair.run(call)
    found = pair.run(pair.commands.list_migrating(0))
    assert (found.token, len(found.tasks)) == (batch.token, 2)
    assert len(pair.run(pair.commands.list_migrating(0, task_id=AWAY[1])).tasks) == 2


def test_calls_with_an_older_shard_map_are_refused_with_the_newer_one(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    old = pair.commands.pinned_to(ShardMap(2, 1, 1, 2, 2))
    limits: dict[str, Any] = {"if_exists": "reject", "repeated": 0, "max_length": 9, "max_delay_ms": 9}
    calls: list[Call[Any]] = [
        *calls_by_id(old, AWAY[0], AWAY[0]),
        old.schedule(0, ["z", "+1", b"body"], **limits),
        old.migrate_out(0, [AWAY[0].encode()], near_ms=0),
        old.migrate_in(0, 1, 7, []),
        old.scan(0, "0"),
        old.migrate_done(0),
    ]
    for call in calls:
        with pytest.raises(ShardMapOutdated) as raised:
            pair.run(call)
        assert raised.value.shard_map == MOVING
    assert at(pair, 0).delayed == {AWAY[0]: FAR}


def test_a_call_with_a_newer_shard_map_updates_the_shard(pair: Shard) -> None:
    assert pair.run(pair.commands.sync_shard_map(0)).shard_map is None
    assert pair.run(pair.commands.cancel("a", shard=0)) is Cancelled.NOT_FOUND
    assert pair.run(pair.commands.sync_shard_map(0)).shard_map == MOVING
    assert pair.run(pair.commands.sync_shard_map(0, ShardMap(2, 1, 1, 2, 2))).shard_map == MOVING


def test_with_full_memory_a_batch_arrives_and_none_is_taken(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR, AWAY[1]: FAR}))
    batch = migrate_out(pair, AWAY[0])
    with pair.full_memory():
        with pytest.raises(DelayQError, match="OOM"):
            migrate_out(pair, AWAY[1])
        assert migrate_in(pair, batch) == 1
        assert commit(pair, batch) == 1
    assert (at(pair, 0).delayed, at(pair, 1).delayed) == ({AWAY[1]: FAR}, {AWAY[0]: FAR})


def test_a_shard_is_not_done_while_tasks_are_migrating(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    batch = migrate_out(pair, AWAY[0])
    assert not pair.run(pair.commands.migrate_done(0))
    migrate_in(pair, batch)
    pair.run(pair.commands.migrate_verify(1, 0, batch.token))
    pair.run(pair.commands.migrate_commit(0, batch.token))
    assert pair.run(pair.commands.migrate_done(0))
    assert pair.run(pair.commands.sync_shard_map(0)).home_epoch == MOVING.epoch


def newcomer(pair: Shard) -> Operations:
    """A client without a shard map."""
    return Operations(Commands(pair.commands.queue), Limits())


def commit(pair: Shard, batch: MigrationBatch) -> int:
    """How many tasks the source deletes, once the target has verified the batch."""
    assert pair.run(pair.commands.migrate_verify(1, 0, batch.token))
    return pair.run(pair.commands.migrate_commit(0, batch.token))


# a whole migrator


def migrator(pair: Shard, monkeypatch: pytest.MonkeyPatch) -> tuple[ShardMigration, Stepping]:
    for name in ("KEEP_SECONDS", "AGAIN_SECONDS"):
        monkeypatch.setattr(migration, name, 0.0)
    connection: Any = Connection()
    move = ShardMigration(0, pair.commands, connection, near_ms=0)
    return move, Stepping(pair.run, move.step)


def settle(move: ShardMigration, stepping: Stepping, *, steps: int = 40) -> None:
    for _ in range(steps):
        stepping.whole()
    assert move.scan.done


def each_at_home(pair: Shard) -> bool:
    return (sorted(at(pair, 0).delayed), sorted(at(pair, 1).delayed)) == (HERE, AWAY)


def test_a_migrator_without_a_shard_map_sends_nothing(pair: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that was dropped meanwhile could not refuse it."""
    put(pair, State(delayed={AWAY[0]: FAR}))
    migrate_out(pair, AWAY[0])
    pair.commands.use_shard_map(ShardMap.assumed(2))
    _, stepping = migrator(pair, monkeypatch)
    stepping.whole()
    assert at(pair, 1) == State()
    pair.commands.use_shard_map(MOVING)
    stepping.whole()
    assert at(pair, 1).delayed == {AWAY[0]: FAR}


def test_a_fail_over_that_forgets_arrivals_loses_nothing(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new shard is as it was a second ago; the source keeps the tasks for longer than that."""
    put(pair, ALL)
    move, stepping = migrator(pair, monkeypatch)
    monkeypatch.setattr(migration, "KEEP_SECONDS", 3600.0)
    while not move.under_way:
        stepping.whole()
    assert sorted(at(pair, 1).delayed) == AWAY
    pair.run(pair.commands.erase(1))
    pair.redis.delete(pair.commands.keys(1).shard_map)
    monkeypatch.setattr(migration, "KEEP_SECONDS", 0.0)
    settle(move, stepping)
    assert each_at_home(pair)


def ahead(pair: Shard, seconds: int = 5) -> None:
    """The last verified batch came from a primary whose clock was ahead of that of its successor."""
    pair.redis.hset(pair.commands.keys(1).arrived, "0", (NOW + seconds * 1000) * 1000)


def test_a_clock_behind_the_last_verified_batch_loses_nothing(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pair, ALL)
    ahead(pair)
    move, stepping = migrator(pair, monkeypatch)
    settle(move, stepping, steps=60)
    assert each_at_home(pair)
    assert at(pair, 1).stats == {}, "none came twice"


def test_a_client_completes_the_migration_of_a_batch_with_an_old_token(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    ahead(pair)
    migrate_out(pair, AWAY[0])
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    assert Operating(pair.run, newcomer(pair).cancel(AWAY[0])).whole().result is Cancelled.CANCELLED


def test_only_tasks_of_a_shard_that_refuses_the_token_get_a_later_one(pair: Shard) -> None:
    """Tasks that have arrived in another shard may have run since."""
    wide = ShardMap(3, 3, 1, 3, 3)
    pair.commands.use_shard_map(wide)
    names = {at_: next(f"n{nth}" for nth in range(99) if wide.home(f"n{nth}") == at_) for at_ in (1, 2)}
    put(pair, State(delayed=dict.fromkeys(names.values(), FAR)))
    ahead(pair)
    batch = migrate_out(pair, *names.values())
    late, arrived = (
        pair.run(pair.commands.migrate_in(to, 0, batch.token, batch.by_shard()[to])) for to in (1, 2)
    )
    assert (late, arrived) == (BatchOutOfOrder((NOW + 5000) * 1000), 1)
    assert isinstance(late, BatchOutOfOrder)
    assert not pair.run(pair.commands.migrate_verify(1, 0, batch.token)), "so the source keeps it"
    with pair.full_memory():
        assert pair.run(pair.commands.migrate_retoken(0, batch.token, 1, late)) == 1
    assert list(pair.run(pair.commands.list_migrating(0)).by_shard()) == [2]
    again = pair.run(pair.commands.list_migrating(0, after=batch.token))
    assert (again.token, list(again.by_shard())) == (late.last + 1, [1])
    assert migrate_in(pair, again) == 1


def test_a_cursor_of_another_run_of_the_server_is_ignored(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pair, State(delayed={f"t{n}": FAR for n in range(2000)}))
    move, stepping = migrator(pair, monkeypatch)
    while move.scan.cursor == "0":
        stepping.whole()
    assert move.scan.cursor not in {None, "0"}
    move.scan.run = "another"
    stepping.whole()
    while move.scan.cursor != "0":
        stepping.whole()
    for _ in range(400):
        stepping.whole()
    assert move.scan.done
    assert all(pair.commands.shard_of(name) == 0 for name in at(pair, 0).delayed)


def test_an_older_batch_of_another_migrator_goes_first(pair: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a later batch is verified, an older one would count as a late copy."""
    put(pair, ALL)
    move, stepping = migrator(pair, monkeypatch)
    stepping.whole()  # there is nothing on its way yet
    migrate_out(pair, AWAY[0])
    settle(move, stepping)
    assert each_at_home(pair)


def test_reapers_complete_migrations_that_no_scanner_does(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr("delayq.resharding.migrator.STRANDED_SECONDS", 0.0)
    put(pair, State(delayed=dict.fromkeys(AWAY, FAR)))
    migrate_out(pair, *AWAY)
    connection: Any = Connection()
    abandoned = Stepping(
        pair.run, AbandonedMigrations(ShardGroup(pair.commands), connection, durability=None).step
    )
    for _ in range(20):
        abandoned.whole()
    assert (at(pair, 0).envelopes, sorted(at(pair, 1).delayed)) == ({}, AWAY)


# clients, while a migrator has died between two calls


@pytest.mark.parametrize("kind", ["schedule", "cancel"])
def test_a_client_gives_up_a_task_that_migrates_from_its_home(pair: Shard, kind: str) -> None:
    """Only a fail-over leaves that behind; a scanner repairs it, and none runs here."""
    keys = pair.commands.keys(1)
    pair.redis.zadd(keys.moving, {AWAY[0]: 5})
    pair.redis.hset(keys.moving_info, AWAY[0], f"1 delayed {FAR}")
    pair.redis.hset(keys.tasks, AWAY[0], envelope(FAR, AWAY[0]))
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    operations = newcomer(pair)
    task = NewTask(1, delay_ms=5000, task_id=AWAY[0])
    begun = operations.schedule(task, "keep") if kind == "schedule" else operations.cancel(AWAY[0])
    asking, seconds = Operating(pair.run, begun), 0.0
    for _ in range(500):
        if asking.done:
            break
        seconds += asking.asked if isinstance(asking.asked, float) else 0.0
        asking.advance()
    assert "is still migrating after" in str(asking.error)
    assert seconds > 5
