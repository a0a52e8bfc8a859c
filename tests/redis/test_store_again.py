"""schedule_many sends again only tasks that were not stored: a task that ran meanwhile must not run twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Durability, NewTask
from delayq.client.enqueue import Finish
from delayq.client.operations import Operations
from delayq.contract import Limits
from delayq.errors import TaskExists, Unavailable
from delayq.protocol.commands import Commands
from delayq.protocol.results import Outcome
from delayq.protocol.shard_map import ShardMap

from tests.redis.paced import Operating
from tests.redis.state import shard_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.protocol.commands import Call

    from tests.redis.state import Shard
    from tests.servers import RedisServer

SETTLED = ShardMap.first(2)
ANNOUNCED = SETTLED.announcing(4, "u:2")
IDS = "abcdefgh"
AT_1 = {name for name in IDS if SETTLED.home(name) == 1}


@pytest.fixture
def pair(redis_server: RedisServer, queue_name: str) -> Iterator[Shard]:
    """Two shards that have the shard map."""
    with shard_on(redis_server, queue_name, 2) as shard:
        shard.commands.use_shard_map(SETTLED)
        for at in (0, 1):
            shard.run(shard.commands.sync_shard_map(at, SETTLED))
        yield shard


def sent(pair: Shard, run: Callable[[Call[Any]], Any], durability: Durability | None = None) -> Operating:
    """Schedule a task of each name, until all is sent and no reply is read."""
    commands = Commands(pair.commands.queue)
    commands.use_shard_map(SETTLED)
    tasks = [NewTask(name, delay_ms=0, task_id=name) for name in IDS]
    operations = Operations(commands, Limits(), durability or Durability("Replicated"))
    operating = Operating(run, operations.schedule_many(tasks, "reject"))
    while not isinstance(operating.asked, Finish):
        operating.advance()
    return operating


def runs(pair: Shard) -> Counter[str]:
    """Run what is due in all shards."""
    ran = Counter[str]()
    for shard in range(4):
        leases = pair.run(pair.commands.claim(shard, 100, 30_000)).leases
        ran.update(lease.task.id for lease in leases)
        pair.run(pair.commands.ack(shard, [lease.member for lease in leases]))
    return ran


class Away:
    """A server of shard 1 that does not answer a schedule, once; `done`: it executed the call."""

    def __init__(self, pair: Shard, *, done: bool) -> None:
        self.pair, self.done, self.times, self.stored = pair, done, 1, Counter[int]()

    def __call__(self, call: Call[Any]) -> Any:  # noqa: ANN401
        if call.script.name != "schedule":
            return self.pair.run(call)
        self.stored[call.keys.shard] += 1
        if call.keys.shard == 1 and self.times:
            self.times -= 1
            if self.done:
                self.pair.run(call)
            raise Unavailable("test", "away")
        return self.pair.run(call)


@pytest.mark.parametrize("why", ["newer shard map", "unreachable"])
def test_what_one_shard_stored_is_not_sent_again_with_what_another_did_not(pair: Shard, why: str) -> None:
    away = Away(pair, done=False)
    if why == "newer shard map":
        assert ANNOUNCED is not None
        pair.run(pair.commands.sync_shard_map(1, ANNOUNCED))
        away.times = 0
    operating = sent(pair, away)
    ran = runs(pair)
    assert ran.keys() == set(IDS) - AT_1
    results = operating.whole().result
    assert away.stored[0] == 1
    assert ran + runs(pair) == dict.fromkeys(IDS, 1)
    assert {each.outcome for each in results.stored.values()} == {Outcome.CREATED}
    assert (len(results.stored), results.unconfirmed, results.refused) == (8, [], {})


def test_a_call_that_was_refused_for_its_shard_map_does_not_count_as_repeated(
    pair: Shard,
) -> None:
    """So a task of that ID and content is another client's."""
    assert ANNOUNCED is not None
    pair.run(pair.commands.sync_shard_map(1, ANNOUNCED))
    operating = sent(pair, pair.run)
    other = Operations(Commands(pair.commands.queue), Limits())
    name = min(AT_1)
    Operating(pair.run, other.schedule(NewTask(name, delay_ms=0, task_id=name), "reject")).whole()
    refused = operating.whole().result.refused
    assert [type(error) for error in refused.values()] == [TaskExists]


@pytest.mark.parametrize("changes", [False, True])
def test_what_may_have_been_stored_is_found_again_also_by_a_newer_shard_map(
    pair: Shard, *, changes: bool
) -> None:
    assert ANNOUNCED is not None
    away = Away(pair, done=True)
    operating = sent(pair, away)
    if changes:
        for shard in (0, 1):
            pair.run(pair.commands.sync_shard_map(shard, ANNOUNCED))
    results = operating.whole().result
    assert results.refused == {}
    repeated = {each.id for each in results.stored.values() if each.outcome is Outcome.REPEATED}
    assert repeated == AT_1


def test_a_shard_that_stays_away_is_given_up_and_the_rest_is_stored_once(pair: Shard) -> None:
    away = Away(pair, done=False)
    away.times = 99
    operating = sent(pair, away).whole()
    assert isinstance(operating.error, Unavailable)
    assert away.stored == {0: 1, 1: 5}
    assert runs(pair).keys() == set(IDS) - AT_1
