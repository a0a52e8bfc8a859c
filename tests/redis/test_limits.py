"""spec.limits: how claim and wake limit the tasks that begin in a second and those that run at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract import Limits
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import encode
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import Outcome
from delayq.protocol.shard_map import ShardMap
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.redis.state import NOW, Shard, State, envelope, shard_on
from tests.redis.working import finish, loop_of

if TYPE_CHECKING:
    from delayq.protocol.results import Claimed, Wait

    from tests.servers import RedisServer

LEASE_MS = 60_000
BODY = encode(None, None, None)[0]


def limited(shard: Shard, **limits: int) -> Commands:
    return Commands(shard.commands.queue, limits=Limits(**limits))


def due(shard: Shard, count: int, *, wake: int = 0) -> State:
    return shard.seed(State(delayed={f"t{n:03}": NOW - count + n for n in range(count)}, wake=wake))


def claim(shard: Shard, commands: Commands, limit: int = 100) -> Claimed:
    return shard.run(commands.claim(0, limit, LEASE_MS))


def wake(shard: Shard, commands: Commands) -> Wait:
    return shard.run(commands.wake(0))


def test_a_rate_lets_a_burst_begin_and_then_one_after_the_other(shard: Shard) -> None:
    commands = limited(shard, rate_per_second=10, burst=3)
    due(shard, 10)
    first = claim(shard, commands)
    assert (len(first.leases), first.more, first.held) == (3, False, True)
    assert first.room_seconds == pytest.approx(0.1, abs=0.001)
    for step, tasks in ((99, 0), (101, 1), (150, 0), (201, 1), (402, 2), (10_000, 3)):
        shard.clock(NOW + step)
        found = claim(shard, commands)
        assert (len(found.leases), found.held) == (tasks, step < 10_000)


def test_a_claim_that_a_limit_stops_wakes_no_worker(shard: Shard) -> None:
    """Other workers could claim nothing either. A worker that is stopped by its own slots wakes the next one."""
    commands = limited(shard, rate_per_second=10, burst=3)
    due(shard, 10, wake=1)
    assert claim(shard, commands, 2).more
    assert shard.whole().wake == 1
    assert not claim(shard, commands, 2).more
    after = shard.whole()
    assert (after.wake, after.alarm) == (0, 1)  # the scanner looks when there is room again
    claim(shard, commands, 2)
    assert shard.whole() == after


def test_the_scanner_gets_the_time_of_the_next_room_and_wakes_no_worker_before(shard: Shard) -> None:
    commands = limited(shard, rate_per_second=10, burst=1)
    due(shard, 5)
    assert wake(shard, commands).due
    claim(shard, commands)
    before = shard.whole()
    wait = wake(shard, commands)
    assert (wait.due, wait.held) == (False, True)
    assert wait.room_seconds == pytest.approx(0.1, abs=0.001)
    assert shard.whole() == before
    shard.clock(NOW + 101)
    assert (wake(shard, commands).due, wake(shard, commands).held) == (True, False)


@pytest.mark.parametrize("forgotten", ["clock", "fail-over"])
def test_a_clock_that_steps_back_or_a_lost_key_permits_one_burst_and_stops_no_task(
    shard: Shard, forgotten: str
) -> None:
    """The key of a rate expires."""
    commands = limited(shard, rate_per_second=10, burst=3)
    due(shard, 10)
    claim(shard, commands)
    assert 0 < shard.redis.pttl(shard.keys.rate) <= 301
    if forgotten == "clock":
        shard.clock(NOW - 3_600_000)
    else:
        shard.redis.delete(shard.keys.rate)
    shard.seed(State(delayed={f"t{n}": 0 for n in range(10)}))
    assert len(claim(shard, commands).leases) == 3
    assert claim(shard, commands).held


def test_a_limit_on_tasks_in_flight_counts_what_workers_hold(shard: Shard) -> None:
    """Deferred leases do not count. Expired leases do until they are reclaimed: their workers may still run."""
    commands = limited(shard, max_in_flight=4)
    due(shard, 9)
    shard.redis.zadd(shard.keys.processing, {"x:1": NOW - 5, "y:1": -(NOW + 60_000), "z:1": NOW + 5})
    first = claim(shard, commands)
    assert (len(first.leases), first.held, first.room_seconds) == (2, True, None)
    wait = wake(shard, commands)
    assert (wait.due, wait.held, wait.room_seconds) == (False, True, None)
    shard.run(commands.ack(0, [first.leases[0].member]))
    assert wake(shard, commands).due
    assert len(claim(shard, commands).leases) == 1


@pytest.mark.parametrize("shard_map", [ShardMap(2, 1, 1, 8, 8), ShardMap(3, 8, 1, 8, 8)])
@pytest.mark.parametrize("limits", [{"max_in_flight": 16}, {"rate_per_second": 16}])
def test_a_change_of_shards_does_not_lower_a_limit(
    shard: Shard, shard_map: ShardMap, limits: dict[str, int]
) -> None:
    """All tasks are in shard 0, and due tasks do not migrate."""
    commands = limited(shard, **limits)
    commands.use_shard_map(shard_map)
    due(shard, 40)
    assert len(claim(shard, commands).leases) == 16
    assert sum(len(shard.run(commands.claim(each, 100, LEASE_MS)).leases) for each in range(1, 8)) == 0


@settings(max_examples=15, deadline=None)
@given(
    rate=st.integers(1, 2000),
    burst=st.integers(1, 30),
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), min_size=1, max_size=12),
)
def test_in_no_stretch_of_time_more_begin_than_the_rate_and_one_burst(
    redis_server: RedisServer, rate: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    with shard_on(redis_server, f"gcra-{rate}-{burst}-{len(steps)}") as shard:
        commands, now, begun = limited(shard, rate_per_second=rate, burst=burst), NOW, list[tuple[int, int]]()
        due(shard, 500)
        for pause, limit in steps:
            now += pause
            shard.clock(now)
            begun.append((now, len(claim(shard, commands, limit).leases)))
        for at, (start, _) in enumerate(begun):
            for upto in range(at, len(begun)):
                spent = sum(count for _, count in begun[at : upto + 1])
                # A clock that stands still shows ms: what it hides is less than one.
                assert spent <= burst + rate * (begun[upto][0] - start + 1) / 1000 + 1e-6
        shard.redis.flushdb()


WEIGHT = 1 + len(envelope())  # of a task with a name of one letter


def test_what_does_not_fit_into_the_bytes_is_refused_and_the_rest_is_stored(shard: Shard) -> None:
    """To the byte; ids count, and so do dead letters."""
    shard.seed(State(dlq={"d": NOW - 1}))
    answer = shard.store("a", "+1", BODY, "b", "+1", BODY, "c", "+1", BODY, max_bytes=3 * WEIGHT)
    assert answer.notes == {2: Outcome.HEAVY}
    assert shard.store("b", "+1", BODY, "bb", "+1", BODY, max_bytes=4 * WEIGHT).notes == {
        0: Outcome.EXISTS,
        1: Outcome.HEAVY,
    }
    assert set(shard.whole().delayed) == {"a", "b"}
    shard.run(shard.commands.purge(0, ["d"]))
    assert shard.store("c", "+1", BODY, max_bytes=3 * WEIGHT).notes == {}


def test_a_replacement_may_be_no_heavier_than_there_is_room_for(shard: Shard) -> None:
    shard.seed(State(delayed={"a": NOW + 1, "b": NOW + 2}))
    heavier = encode("x" * 10, None, None)[0]
    full = 2 * WEIGHT
    assert shard.store("a", "+1", heavier, max_bytes=full, if_exists="replace").notes == {0: Outcome.HEAVY}
    assert shard.store("a", "+9", BODY, max_bytes=full, if_exists="replace").notes == {0: Outcome.REPLACED}
    assert shard.store("a", "+9", BODY, max_bytes=1, if_exists="replace").notes == {0: Outcome.REPLACED}
    more = full + len(heavier) - len(BODY)
    assert shard.store("a", "+1", heavier, max_bytes=more, if_exists="replace").notes == {0: Outcome.REPLACED}
    assert shard.whole().delayed == {"a": NOW + 1, "b": NOW + 2}


def test_a_negative_counter_permits_no_more_than_the_limit(shard: Shard) -> None:
    """Tasks that were never counted are deleted after a loss of the counters."""
    shard.redis.hset(shard.keys.stats, mapping={"format": FORMAT, "bytes": -1000})
    assert shard.store("a", "+1", BODY, "b", "+1", BODY, max_bytes=WEIGHT).notes == {1: Outcome.HEAVY}


@pytest.mark.parametrize("limits", [{"burst": 3, "max_in_flight": 10}, {"burst": 10, "max_in_flight": 3}])
async def test_a_worker_that_ends_its_tasks_before_the_rate_allows_more_comes_back_at_that_time(
    shard: Shard, redis_url: str, limits: dict[str, int]
) -> None:
    """Without a scanner it would come back with the next poll, after a second: it settles, and claims in vain."""
    due(shard, 1)
    async with loop_of(shard.commands, redis_url) as (loop, group_state, _):
        await finish(loop, group_state)  # loads the scripts: Redis runs an unknown one after the others
    due(shard, 20)
    declared = Limits(rate_per_second=10, **limits)
    commands = Commands(shard.commands.queue, limits=declared)
    async with loop_of(commands, redis_url, limits=declared) as (loop, group_state, connection):
        pause = await finish(loop, group_state)
        assert shard.whole().stats["acked"] == limits["burst"]
        assert 0 < pause <= 0.1
        shard.clock(NOW + 101)
        connection.trips.clear()
        while not connection.trips:
            await loop.alarm.wait(await loop.step())
        assert connection.scripts == [("claim", 0)]
    assert shard.whole().stats["claimed"] == limits["burst"] + 1
