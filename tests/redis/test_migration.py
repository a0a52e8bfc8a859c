"""depart, arrive, landed, leave: a batch changes shards, whatever is repeated, comes late or is forgotten."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.client.dead_letters import DeadLetters
from delayq.client.operations import Operations
from delayq.connection import Address, AsyncConnection
from delayq.contract import Limits
from delayq.errors import DelayQError, TaskExists
from delayq.protocol.commands import Commands
from delayq.protocol.results import BatchOutOfOrder, Cancelled, MigrationBatch, Outcome
from delayq.protocol.shard_map import ShardMap, ShardMapOutdated, TaskMigrating
from delayq.resharding import migration
from delayq.resharding.migration import ShardMigration
from delayq.resharding.migrator import AbandonedMigrations, Migrator
from delayq.service.shard_groups import ShardGroup

from tests.redis.paced import Connection, Operating, Stepping
from tests.redis.state import NOW, Shard, State, envelope, seed, shard_on, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.protocol.commands import Call

    from tests.servers import RedisServer

FAR = NOW + 3_600_000
MOVING = ShardMap(3, 2, 1, 2, 2)
# Of "a" to "h" with two shards: b, c, d and f belong to shard 1; the test of keys.py says so for ever.
AWAY = [name for name in "abcdefgh" if MOVING.home(name) == 1]
HERE = [name for name in "abcdefgh" if MOVING.home(name) == 0]
ALL = State(delayed=dict.fromkeys("abcdefgh", FAR))


@pytest.fixture
def pair(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    """Two shards, of which there was one."""
    with shard_on(redis_server, queue_name, 2) as shard:
        shard.commands.follow(MOVING)
        yield shard


def at(pair: Shard, shard: int) -> State:
    found = whole(pair.redis, pair.commands.keys(shard))
    counted = {name: count for name, count in found.stats.items() if name in {"moved", "deduplicated"}}
    return found.but(stats=counted, alarm=0, wake=0)


def put(pair: Shard, state: State, shard: int = 0) -> None:
    seed(pair.redis, pair.commands.keys(shard), state)


def depart(pair: Shard, *ids: str, near_ms: int = 60_000) -> MigrationBatch:
    return pair.run(pair.commands.migrate_out(0, [each.encode() for each in ids], near_ms=near_ms))


def arrive(pair: Shard, batch: MigrationBatch) -> int:
    new = [
        pair.run(pair.commands.migrate_in(to, 0, batch.token, tasks))
        for to, tasks in batch.by_shard().items()
    ]
    return sum(each for each in new if not isinstance(each, BatchOutOfOrder))


def test_a_task_of_each_kind_goes_with_all_that_is_known_of_it(pair: Shard) -> None:
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
    batch = depart(pair, first, second, third)
    assert arrive(pair, batch) == 3
    assert landed(pair, batch) == 3
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
    pair.run(pair.commands.lock(locked, "somebody", 1000, shard=0))
    batch = depart(pair, soon, flying, locked, far, "gone")
    assert sorted(batch.stay) == sorted(name.encode() for name in (soon, flying, locked))
    assert [task.arguments[0] for task in batch.tasks] == [far.encode()]


def test_what_is_late_for_long_goes_where_nobody_runs_it(pair: Shard) -> None:
    """A queue on hold is not to move for ever; of one that works, what is late runs soon, and where it is."""
    long_ago, just_now, retried, flying = AWAY[:4]
    delayed = {long_ago: NOW - 60_001, just_now: NOW - 60_000}
    put(pair, State(delayed=delayed, retry={retried: NOW - 99_999}, processing={f"{flying}:7": FAR}))
    assert depart(pair, long_ago, just_now, retried).tasks == []
    pair.redis.delete(pair.commands.keys(0).processing)
    batch = depart(pair, long_ago, just_now, retried)
    assert [task.arguments[0] for task in batch.tasks] == [long_ago.encode(), retried.encode()]
    assert batch.stay == [just_now.encode()]
    arrive(pair, batch)
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
    pair.run(pair.commands.elect(1, "me", 9000))
    settled = ShardMap(4, 1, 1, 1, 2)
    pair.commands.follow(settled)
    told = pair.run(pair.commands.retire_shard(1))
    assert (told.shard_map, told.tasks, pair.redis.exists(keys.cursors)) == (settled, 1, 1), "it holds a task"
    pair.run(pair.commands.cancel(HERE[0], shard=1))
    pair.run(pair.commands.retire_shard(1))
    assert {
        key.decode() if isinstance(key, bytes) else key
        for key in pair.redis.keys(f"*:{{{pair.commands.queue}:1}}:*")
    } == {
        keys.shard_map,
        keys.stats,
    }


def test_a_follow_up_that_an_older_worker_left_in_a_dropped_shard_becomes_the_task(pair: Shard) -> None:
    """Nothing reconciles a dropped shard; what it holds, scanners move."""
    follow_up = envelope(FAR, "next")
    put(pair, State(followups={HERE[0]: follow_up}), shard=1)
    pair.commands.follow(ShardMap(4, 1, 1, 1, 2))
    assert pair.run(pair.commands.retire_shard(1)).tasks == 1
    left = at(pair, 1)
    assert (left.delayed, left.tasks, left.followups) == ({HERE[0]: FAR}, {HERE[0]: follow_up}, {})


def test_a_shard_that_is_to_come_back_is_not_dropped(pair: Shard) -> None:
    pair.run(pair.commands.sync_shard_map(1, MOVING))
    pair.redis.hset(pair.commands.keys(1).cursors, "home", 3)
    pair.commands.follow(ShardMap(1, 1, 1, 1, 2))
    assert pair.run(pair.commands.retire_shard(1)).shard_map == MOVING
    assert pair.redis.exists(pair.commands.keys(1).cursors) == 1


def test_too_much_for_one_call_is_left_for_the_next(pair: Shard) -> None:
    large = envelope(FAR, "x" * 150_000)  # two of them are more than a quarter of a mebibyte
    put(pair, State(delayed=dict.fromkeys(AWAY[:3], FAR), tasks=dict.fromkeys(AWAY[:3], large)))
    batch = depart(pair, *AWAY[:3])
    assert (len(batch.tasks), len(batch.later)) == (1, 2)


def test_a_batch_arrives_once_however_often_it_is_sent(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    batch = depart(pair, AWAY[0])
    assert [arrive(pair, batch), arrive(pair, batch)] == [1, 0]
    pair.run(pair.commands.cancel(AWAY[0]))
    assert arrive(pair, batch) == 0
    assert landed(pair, batch) == 1
    assert arrive(pair, batch) == 0, "a copy that comes late, after everybody has forgotten the batch"
    pair.redis.hset(pair.commands.keys(1).arrived, "0", batch.token + 1)
    [tasks] = batch.by_shard().values()
    late = pair.run(pair.commands.migrate_in(1, 0, batch.token, tasks))
    assert isinstance(late, BatchOutOfOrder)
    assert late.last == batch.token + 1, "and later ones have landed"
    assert pair.run(pair.commands.migrate_retoken(0, batch.token, 1, late)) == 0
    assert at(pair, 1).envelopes == at(pair, 0).envelopes == {}


async def test_a_process_remembers_so_many_of_those_that_stay_and_no_more_whatever_it_leads(
    pair: Shard, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are found by walking again, once those have gone."""
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
    """Nothing of it is stored or noted: once the key is mended, all of it arrives."""
    put(pair, State(delayed=dict.fromkeys(AWAY, FAR)))
    batch, key = depart(pair, *AWAY), getattr(pair.commands.keys(1), name)
    pair.redis.delete(key)
    pair.redis.set(key, "x")
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        arrive(pair, batch)
    pair.redis.delete(key)
    assert not pair.run(pair.commands.migrate_verify(1, 0, batch.token))
    assert arrive(pair, batch) == len(AWAY)
    assert at(pair, 1).delayed == dict.fromkeys(AWAY, FAR)


@pytest.mark.parametrize("info", ["", "1", "x delayed 5", "1 stats 5", "1 delayed x", "1 delayed nan"])
def test_what_says_nobody_where_it_goes_stays_and_runs_here(
    pair: Shard, monkeypatch: pytest.MonkeyPatch, info: str
) -> None:
    """When it is due, not before. Beside what moves on as ever; and a ghost in `moving` keeps nobody waiting."""
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
    batch, keys = depart(pair, *AWAY[:3]), pair.commands.keys(0)
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


def test_tokens_never_fall_for_a_task_that_changes_shards(pair: Shard) -> None:
    """Those of its old shard go on from a clock that was ahead."""
    ahead = (NOW + 3_600_000) * 1000
    put(pair, State(delayed={AWAY[0]: FAR}))
    pair.redis.hset(pair.commands.keys(0).stats, "token", ahead)
    batch = depart(pair, AWAY[0])
    assert batch.token > ahead
    arrive(pair, batch)
    pair.run(pair.commands.reschedule(AWAY[0], "+0", max_delay_ms=FAR, shard=1))
    [lease] = pair.run(pair.commands.claim(1, 1, 10_000)).leases
    assert int(lease.member.rpartition(b":")[2]) > batch.token


@pytest.mark.parametrize("garbage", ["x", "inf", "1e300"])
def test_a_last_token_that_is_none_keeps_nothing_from_moving(pair: Shard, garbage: str) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    for shard in (0, 1):
        pair.redis.hset(pair.commands.keys(shard).stats, "token", garbage)
    batch = depart(pair, AWAY[0])
    assert arrive(pair, batch) == 1
    assert pair.redis.hget(pair.commands.keys(1).stats, "token") == str(batch.token).encode()


def test_a_batch_that_its_shard_forgot_lets_nothing_in_that_has_landed(pair: Shard) -> None:
    """Who saw it before the fail-over says so later, and another has a copy of what departed after that."""
    put(pair, State(delayed={AWAY[0]: FAR}))
    forgotten = depart(pair, AWAY[0])
    arrive(pair, forgotten)
    keys = pair.commands.keys(0)
    pair.redis.delete(keys.moving, keys.moving_info)
    pair.redis.zadd(keys.delayed, {AWAY[0]: FAR})
    batch = depart(pair, AWAY[0])
    arrive(pair, batch)
    assert landed(pair, batch) == 1
    assert pair.run(pair.commands.cancel(AWAY[0])) is Cancelled.CANCELLED
    assert not pair.run(pair.commands.migrate_verify(1, 0, forgotten.token))
    assert arrive(pair, batch) == arrive(pair, forgotten) == 0
    assert not at(pair, 1).tasks
    assert pair.redis.hgetall(pair.commands.keys(1).arrived) == {b"0": str(batch.token).encode()}


def test_dead_letters_on_their_way_take_no_live_tasks_room(pair: Shard) -> None:
    put(pair, State(dlq=dict.fromkeys(AWAY, NOW)))
    options: dict[str, Any] = {"if_exists": "reject", "repeated": 0, "max_length": 1, "max_delay_ms": 9}
    depart(pair, *AWAY)
    stored = pair.run(pair.commands.schedule(0, [HERE[0], "+1", b"x", HERE[1], "+1", b"x"], **options))
    assert stored.notes == {1: Outcome.FULL}


def test_where_a_fail_over_left_a_task_at_both_shards_the_one_at_home_stands(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}, tasks={AWAY[0]: envelope(FAR, "old")}))
    put(pair, State(retry={AWAY[0]: FAR + 1}, tasks={AWAY[0]: envelope(FAR, "new")}), shard=1)
    arrive(pair, depart(pair, AWAY[0]))
    after = at(pair, 1)
    assert after.envelopes == {AWAY[0]: envelope(FAR, "new")}
    assert (after.delayed, after.retry) == ({}, {AWAY[0]: FAR + 1})
    assert after.stats["deduplicated"] == 1


def test_whoever_asks_for_a_task_on_its_way_is_told_so_and_nothing_is_done(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}, dlq={AWAY[1]: NOW}))
    batch = depart(pair, *AWAY[:2])
    commands = pair.commands
    calls: list[Call[Any]] = [
        commands.cancel(AWAY[0], shard=0),
        commands.get(AWAY[0], shard=0),
        commands.reschedule(AWAY[0], "+5", max_delay_ms=10, shard=0),
        commands.redrive(0, [AWAY[1], 0]),
        commands.purge(0, [AWAY[1]]),
    ]
    for call in calls:
        with pytest.raises(TaskMigrating):
            pair.run(call)
    assert pair.run(commands.list_migrating(0)) == MigrationBatch(
        batch.token, pair.run(commands.list_migrating(0)).tasks
    )
    assert len(pair.run(commands.list_migrating(0, task_id=AWAY[1])).tasks) == 2


def test_who_goes_by_an_older_shard_map_is_told_the_newer_and_nothing_is_done(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    old = pair.commands.by(ShardMap(2, 1, 1, 2, 2))
    limits: dict[str, Any] = {"if_exists": "reject", "repeated": 0, "max_length": 9, "max_delay_ms": 9}
    calls: list[Call[Any]] = [
        old.schedule(0, ["z", "+1", b"body"], **limits),
        old.cancel(AWAY[0], shard=0),
        old.get(AWAY[0], shard=0),
        old.reschedule(AWAY[0], "+5", max_delay_ms=10, shard=0),
        old.redrive(0, [AWAY[0], 0]),
        old.purge(0, [AWAY[0]]),
        old.migrate_out(0, [AWAY[0].encode()], near_ms=0),
        old.migrate_in(0, 1, 7, []),
        old.scan(0, "0"),
        old.migrate_done(0),
    ]
    for call in calls:
        with pytest.raises(ShardMapOutdated) as told:
            pair.run(call)
        assert told.value.shard_map == MOVING
    assert at(pair, 0).delayed == {AWAY[0]: FAR}


def test_who_goes_by_a_newer_shard_map_teaches_the_shard(pair: Shard) -> None:
    assert pair.run(pair.commands.sync_shard_map(0)).shard_map is None
    assert pair.run(pair.commands.cancel("a", shard=0)) is Cancelled.NOT_FOUND
    assert pair.run(pair.commands.sync_shard_map(0)).shard_map == MOVING
    assert pair.run(pair.commands.sync_shard_map(0, ShardMap(2, 1, 1, 2, 2))).shard_map == MOVING


def test_full_memory_lets_arrive_what_has_departed_and_nothing_depart(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR, AWAY[1]: FAR}))
    batch = depart(pair, AWAY[0])
    with pair.full_memory():
        with pytest.raises(DelayQError, match="OOM"):
            depart(pair, AWAY[1])
        assert arrive(pair, batch) == 1
        assert landed(pair, batch) == 1
    assert (at(pair, 0).delayed, at(pair, 1).delayed) == ({AWAY[1]: FAR}, {AWAY[0]: FAR})


def test_a_shard_is_not_done_while_tasks_are_on_their_way(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    batch = depart(pair, AWAY[0])
    assert not pair.run(pair.commands.migrate_done(0))
    arrive(pair, batch)
    pair.run(pair.commands.migrate_verify(1, 0, batch.token))
    pair.run(pair.commands.migrate_commit(0, batch.token))
    assert pair.run(pair.commands.migrate_done(0))
    assert pair.run(pair.commands.sync_shard_map(0)).home_epoch == MOVING.epoch


def newcomer(pair: Shard) -> Operations:
    """A client that does not know the shard map yet."""
    return Operations(Commands(pair.commands.queue), Limits())


def landed(pair: Shard, batch: MigrationBatch) -> int:
    """How many tasks the source forgets, once the target has confirmed the batch."""
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


def test_a_mover_that_knows_no_shard_map_brings_nothing_anywhere(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that has been dropped meanwhile could not refuse it."""
    put(pair, State(delayed={AWAY[0]: FAR}))
    depart(pair, AWAY[0])
    pair.commands.follow(ShardMap.assumed(2))
    _, stepping = migrator(pair, monkeypatch)
    stepping.whole()
    assert at(pair, 1) == State()
    pair.commands.follow(MOVING)
    stepping.whole()
    assert at(pair, 1).delayed == {AWAY[0]: FAR}


@pytest.mark.parametrize("crash_after", range(12))
def test_another_goes_on_wherever_a_mover_died(
    pair: Shard, monkeypatch: pytest.MonkeyPatch, crash_after: int
) -> None:
    put(pair, ALL)
    _, dies = migrator(pair, monkeypatch)
    for _ in range(crash_after):
        dies.advance()
    move, stepping = migrator(pair, monkeypatch)
    settle(move, stepping)
    assert each_at_home(pair)
    if not crash_after:
        assert (move.scan.tasks, move.scan.checked, move.scan.moved) == (8, 8, len(AWAY))
    for _ in range(40):
        dies.whole()  # it was not dead, it slept
    assert each_at_home(pair)


def test_a_fail_over_that_forgets_arrivals_loses_nothing(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new shard is as it was a second ago: the tasks are kept where they came from for longer than that."""
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
    """What landed last came from a primary whose clock was ahead; the one that took its place knows nothing of it."""
    pair.redis.hset(pair.commands.keys(1).arrived, "0", (NOW + seconds * 1000) * 1000)


def test_a_clock_that_is_behind_what_landed_loses_nothing(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pair, ALL)
    ahead(pair)
    move, stepping = migrator(pair, monkeypatch)
    settle(move, stepping, steps=60)
    assert each_at_home(pair)
    assert at(pair, 1).stats == {}, "none came twice"


def test_a_task_that_comes_late_by_its_token_is_brought(pair: Shard) -> None:
    put(pair, State(delayed={AWAY[0]: FAR}))
    ahead(pair)
    depart(pair, AWAY[0])
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    assert Operating(pair.run, newcomer(pair).cancel(AWAY[0])).whole().result is Cancelled.CANCELLED


def test_only_what_goes_where_it_would_be_late_gets_a_later_token(pair: Shard) -> None:
    """What has arrived elsewhere may have run since."""
    wide = ShardMap(3, 3, 1, 3, 3)
    pair.commands.follow(wide)
    names = {at_: next(f"n{nth}" for nth in range(99) if wide.home(f"n{nth}") == at_) for at_ in (1, 2)}
    put(pair, State(delayed=dict.fromkeys(names.values(), FAR)))
    ahead(pair)
    batch = depart(pair, *names.values())
    late, arrived = (
        pair.run(pair.commands.migrate_in(to, 0, batch.token, batch.by_shard()[to])) for to in (1, 2)
    )
    assert (late, arrived) == (BatchOutOfOrder((NOW + 5000) * 1000), 1)
    assert isinstance(late, BatchOutOfOrder)
    assert not pair.run(pair.commands.migrate_verify(1, 0, batch.token)), "nobody is to forget it"
    with pair.full_memory():
        assert pair.run(pair.commands.migrate_retoken(0, batch.token, 1, late)) == 1
    assert list(pair.run(pair.commands.list_migrating(0)).by_shard()) == [2]
    again = pair.run(pair.commands.list_migrating(0, after=batch.token))
    assert (again.token, list(again.by_shard())) == (late.last + 1, [1])
    assert arrive(pair, again) == 1


def test_a_cursor_of_another_run_of_the_server_is_worth_nothing(
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


def test_a_batch_of_somebody_else_that_is_older_goes_first(
    pair: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a later one has landed, it would be taken for a copy that comes late."""
    put(pair, ALL)
    move, stepping = migrator(pair, monkeypatch)
    stepping.whole()  # there is nothing on its way yet
    depart(pair, AWAY[0])
    settle(move, stepping)
    assert each_at_home(pair)


def test_reapers_go_on_with_what_no_scanner_does(pair: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr("delayq.resharding.migrator.STRANDED_SECONDS", 0.0)
    put(pair, State(delayed=dict.fromkeys(AWAY, FAR)))
    depart(pair, *AWAY)
    connection: Any = Connection()
    abandoned = Stepping(
        pair.run, AbandonedMigrations(ShardGroup(pair.commands), connection, durability=None).step
    )
    for _ in range(20):
        abandoned.whole()
    assert (at(pair, 0).envelopes, sorted(at(pair, 1).delayed)) == ({}, AWAY)


# clients, while a migrator has died between two calls


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("get", lambda view: view.state == "scheduled"),
        ("cancel", lambda outcome: outcome is Cancelled.CANCELLED),
        ("reschedule", lambda done: done.outcome == "rescheduled"),
        ("keep", lambda scheduled: scheduled.outcome is Outcome.KEPT),
        ("replace", lambda scheduled: scheduled.outcome is Outcome.REPLACED),
        ("reject", lambda error: isinstance(error, TaskExists)),
    ],
)
def test_a_task_on_its_way_is_found(
    pair: Shard, kind: str, found: Callable[[Any], bool], *, arrived: bool
) -> None:
    name = AWAY[0]
    put(pair, State(delayed={name: FAR}))
    batch = depart(pair, name)
    if arrived:
        arrive(pair, batch)
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    operations = newcomer(pair)
    new = NewTask("new", delay_ms=5000, task_id=name)
    begins: dict[str, Callable[[], Any]] = {
        "get": lambda: operations.get(name),
        "cancel": lambda: operations.cancel(name),
        "reschedule": lambda: operations.reschedule(name, 5000, None),
        **{each: partial(operations.schedule, new, each) for each in ("keep", "replace", "reject")},
    }
    done = Operating(pair.run, begins[kind]()).whole()
    assert found(done.error or done.result)


@pytest.mark.parametrize("kind", ["schedule", "cancel"])
def test_a_task_that_moves_from_its_home_is_not_followed_for_ever(pair: Shard, kind: str) -> None:
    """Only a fail-over leaves that behind, or somebody's hand; a scanner mends it, and none runs here."""
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


def test_dead_letters_on_their_way_are_redriven_and_purged(pair: Shard) -> None:
    put(pair, State(dlq=dict.fromkeys(AWAY[:2], NOW), dlq_info=dict.fromkeys(AWAY[:2], "1 0 buried x")))
    depart(pair, *AWAY[:2])
    pair.run(pair.commands.sync_shard_map(0, MOVING))
    letters = DeadLetters(newcomer(pair))
    assert Operating(pair.run, letters.redrive([AWAY[0]], None, dry_run=False)).whole().result.tasks == 1
    assert Operating(pair.run, letters.purge([AWAY[1]])).whole().result == 1
    assert (at(pair, 1).delayed, at(pair, 1).dlq) == ({AWAY[0]: NOW}, {})
