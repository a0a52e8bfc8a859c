"""Of two shard maps the one holds that shard 0 decided later, also after a fail-over, an erase or a long pause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask
from delayq.client.dead_letters import DeadLetters
from delayq.client.operations import Operations
from delayq.contract import Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import GONE_MS, Commands
from delayq.protocol.results import Cancelled, Outcome
from delayq.protocol.shard_map import ShardMap, ShardMapOutdated
from delayq.resharding import coordinator
from delayq.resharding.coordinator import DesiredShards, ReshardingCoordinator

from tests.redis.paced import Connection, Operating, Stepping
from tests.redis.state import NOW, PLENTY, shard_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis.state import Shard
    from tests.servers import RedisServer

HOUR = 3_600_000


@pytest.fixture
def few(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    """Eight shards without a shard map."""
    with shard_on(redis_server, queue_name, 8) as shard:
        yield shard


def decided(shard: Shard, shard_map: ShardMap) -> ShardMap:
    reported: ShardMap | None = shard.run(
        shard.commands.sync_shard_map(0, shard_map, proposed=True)
    ).shard_map
    assert reported is not None
    return reported


def towards(shard_map: ShardMap, wanted: int, asked: str) -> ShardMap:
    announced = shard_map.announcing(wanted, asked)
    assert announced is not None
    return announced


def known(shard: Shard, at: int) -> ShardMap | None:
    found: ShardMap | None = shard.run(shard.commands.sync_shard_map(at)).shard_map
    return found


def do(shard: Shard, operation: Any) -> Any:  # noqa: ANN401
    done = Operating(shard.run, operation).whole()
    if done.error:
        raise done.error
    return done.result


def store(shard: Shard, operations: Operations, name: str) -> Outcome:
    new = NewTask(name, delay_ms=HOUR, task_id=name)
    outcome: Outcome = do(shard, operations.schedule(new, "reject")).outcome
    return outcome


def leading(shard: Shard, shards: int, stamp: str) -> tuple[Commands, Stepping]:
    commands = Commands(shard.commands.queue, shards=shards)
    connection: Any = Connection()
    service = ReshardingCoordinator(
        commands, connection, wish=DesiredShards(shards, stamp), led=lambda: {0}, announce_seconds=0.0
    )
    return commands, Stepping(shard.run, service.step)


@pytest.mark.parametrize("step_ms", [5, -HOUR])
def test_shard_0_decides_on_one_of_two_and_gives_it_a_later_epoch(few: Shard, step_ms: int) -> None:
    first = decided(few, ShardMap.first(4, "u:1"))
    assert first == ShardMap(NOW, 4, 4, 4, 4, "u:1")
    few.clock(NOW + step_ms)
    mine, theirs = towards(first, 6, "u:2"), towards(first, 8, "u:3")
    decision = ShardMap(max(NOW + 1, NOW + step_ms), 4, 4, 6, 6, "u:2")
    assert decided(few, mine) == decision
    assert decided(few, theirs) == decision, "another process was quicker"


def test_a_shard_map_that_a_fail_over_lost_is_older_than_those_decided_later(few: Shard) -> None:
    """A client that still has it does not bring it back, though both succeed the same map."""
    first = decided(few, ShardMap.first(4, "u:1"))
    eight, six = towards(first, 8, "u:2"), towards(first, 6, "u:3")
    forgotten = decided(few, eight)
    few.redis.set(few.commands.keys(0).shard_map, str(first))
    few.clock(NOW + 2000)
    later = decided(few, six)
    assert few.run(few.commands.sync_shard_map(0, forgotten)).shard_map == later
    few.commands.use_shard_map(forgotten)
    with pytest.raises(ShardMapOutdated) as raised:
        few.run(few.commands.cancel("a", shard=0))
    assert raised.value.shard_map == later


def test_of_two_shard_maps_of_one_epoch_every_shard_and_every_process_takes_the_same(few: Shard) -> None:
    one, other = ShardMap(NOW, 4, 4, 6, 8, "u:1"), ShardMap(NOW, 4, 4, 8, 8, "u:2")
    for at, order in enumerate([(one, other), (other, one)]):
        for each in order:
            few.run(few.commands.sync_shard_map(at, each))
        assert known(few, at) == other
        commands = Commands("q")
        for each in order:
            commands.apply_shard_map(each)
        assert commands.shard_map == other
        few.commands.use_shard_map(one)
        with pytest.raises(ShardMapOutdated):
            few.run(few.commands.cancel("a", shard=at))


def test_a_client_of_an_erased_queue_finds_the_one_created_since(few: Shard) -> None:
    """The erased one had more shards, which no process serves any more. Until then, the client begins anew."""
    operations = Operations(Commands(few.commands.queue, shards=8), Limits())
    for name in "abcdefgh":
        store(few, operations, name)
    assert operations.commands.shard_map.shards == 8
    for epoch in (NOW + 500, NOW + 1000):
        for at in reversed(range(8)):
            few.run(few.commands.erase(at))
        assert do(few, operations.cancel("a")) is Cancelled.NOT_FOUND
        few.clock(epoch)
        if epoch == NOW + 500:
            assert store(few, operations, "a") is Outcome.CREATED
            assert known(few, 0) == ShardMap(epoch, 8, 8, 8, 8)
    few.clock(NOW + 2000)
    commands, leader = leading(few, 4, "v:1")
    leader.whole()
    assert commands.shard_map == ShardMap(NOW + 2000, 4, 4, 4, 4, "v:1")
    names = [f"t{nth}" for nth in range(40)]
    assert {store(few, operations, name) for name in names} == {Outcome.CREATED}
    assert operations.commands.shard_map == commands.shard_map
    assert sum(few.redis.zcard(few.commands.keys(at).delayed) for at in range(4)) == 40
    fresh = Operations(Commands(few.commands.queue), Limits())
    assert {do(few, fresh.cancel(name)) for name in names} == {Cancelled.CANCELLED}
    leader.whole()
    assert known(few, 0) == commands.shard_map


def test_a_shard_that_was_erased_alone_is_refused_until_a_scanner_repairs_it(
    few: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an erase that was killed half-way, of a queue that is still in use."""
    monkeypatch.setattr(coordinator, "TELL_SECONDS", 0.0)
    operations = Operations(Commands(few.commands.queue, shards=8), Limits())
    commands, leader = leading(few, 8, "u:1")
    leader.whole()
    before = commands.shard_map
    [there, gone] = [next(n for n in map(str, range(99)) if before.home(n) == shard) for shard in (0, 7)]
    for name in (there, gone):
        store(few, operations, name)
    few.clock(NOW + 1000)
    few.run(few.commands.erase(7))
    verbs = operations.get(gone), operations.cancel(gone), DeadLetters(operations).purge([gone])
    for verb in (operations.schedule(NewTask("x", delay_ms=HOUR, task_id=gone), "reject"), *verbs):
        with pytest.raises(ShardMapOutdated, match="was erased, but others were not"):
            do(few, verb)
    assert do(few, operations.get(there)) is not None
    leader.whole()
    assert commands.shard_map == replace(before, epoch=NOW + 1001)
    leader.whole()
    assert {known(few, at) for at in range(8)} == {commands.shard_map}
    assert store(few, operations, gone) is Outcome.CREATED
    assert do(few, operations.cancel(there)) is Cancelled.CANCELLED


def test_a_scanner_brings_nothing_back_that_was_erased_whole(
    few: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "TELL_SECONDS", 0.0)
    _, leader = leading(few, 8, "u:1")
    leader.whole()
    for at in reversed(range(8)):
        few.run(few.commands.erase(at))
    leader.whole()
    leader.whole()
    assert {known(few, at) for at in range(8)} == {None}


def test_only_a_tombstone_is_left_of_an_erased_shard_and_expires(few: Shard) -> None:
    first, key = decided(few, ShardMap.first(8)), few.commands.keys(0).shard_map
    assert few.run(few.commands.erase(0)) == (1, 0, "")
    assert few.run(few.commands.erase(0)) == (0, 0, "")
    assert known(few, 0) is None
    assert few.run(few.commands.sync_shard_map(0, first)).shard_map is None, (
        "no process that had it stores it again"
    )
    assert 0 < few.redis.pttl(key) <= GONE_MS
    decided(few, ShardMap.first(8))
    assert few.redis.pttl(key) == -1


def test_a_newer_shard_map_lets_no_task_be_stored_with_full_memory(few: Shard) -> None:
    few.run(few.commands.sync_shard_map(0, ShardMap(NOW, 1, 1, 1, 8)))
    few.commands.use_shard_map(ShardMap(NOW + 1, 1, 1, 1, 8))
    body = [item for nth in range(250) for item in (f"t{nth}", "+1000", b"x" * 50)]
    options: dict[str, Any] = {"if_exists": "reject", "repeated": 0, **PLENTY}
    with few.full_memory():
        with pytest.raises(DelayQError, match="OOM"):
            few.run(few.commands.schedule(0, body, **options))
        assert few.run(few.commands.cancel("a", shard=0)) is Cancelled.NOT_FOUND
    assert few.redis.exists(few.commands.keys(0).tasks) == 0
    assert known(few, 0) == few.commands.shard_map


def test_a_migration_ends_with_full_memory(few: Shard) -> None:
    moving = ShardMap(NOW, 1, 2, 1, 2)
    few.run(few.commands.sync_shard_map(0, moving))
    few.commands.use_shard_map(moving)
    with few.full_memory():
        assert few.run(few.commands.migrate_done(0))
    assert few.run(few.commands.sync_shard_map(0)).home_epoch == NOW


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(each)["fields"] for each in caplog.records if each.message == event]


def test_a_scanner_logs_once_that_its_document_is_older(few: Shard, caplog: pytest.LogCaptureFixture) -> None:
    decided(few, ShardMap.first(4, "u:1"))
    commands, leader = leading(few, 8, "-")
    for _ in range(3):
        leader.whole()
    [fields] = said(caplog, "resharding_refused")
    assert (fields["asked"], fields["stays"], commands.shard_map.target) == (8, 4, 4)
    assert "u:1" in fields["because"]


def test_a_scanner_logs_once_that_there_are_tasks_without_a_shard_map(
    few: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    few.redis.hset(few.commands.keys(0).tasks, "old", b"x")
    _, leader = leading(few, 8, "u:1")
    for _ in range(3):
        leader.whole()
    assert [fields["tasks"] for fields in said(caplog, "shard_map_missing")] == [1]
    _, later = leading(few, 8, "u:1")
    later.whole()
    assert len(said(caplog, "shard_map_missing")) == 1, "now there is a shard map"
    assert said(caplog, "resharding_refused") == []
