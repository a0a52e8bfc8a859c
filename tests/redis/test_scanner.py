"""The scanner of a shard, step by step, on a real Redis: it looks often only where a look can change something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delayq.contract import Limits
from delayq.errors import Unavailable
from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import Commands
from delayq.scanner.leader_election import LeaderElection
from delayq.scanner.scanner import OVERDUE_SECONDS, RARELY_SECONDS, TICK_SECONDS, ShardScanner
from delayq.service.shard_groups import ShardGroup

from tests.redis.paced import Connection, Stepping
from tests.redis.state import NOW, Shard, State
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call

LEASE_MS = 60_000
HOUR_MS = 3_600_000


async def pauses(shard: Shard, connection: AsyncConnection, steps: int, **limits: int) -> list[float]:
    commands = Commands(shard.commands.queue, limits=Limits(**limits))
    scanner = ShardScanner(0, commands, connection, spec=spec())
    scanner.leads = True
    return [await scanner.step() for _ in range(steps)]


async def test_a_hint_that_nobody_takes_is_looked_at_ever_more_rarely(
    shard: Shard, connection: AsyncConnection
) -> None:
    """Every worker is busy, none lives, or stopPolicy holds them: the hint lies there for the first who can."""
    shard.seed(State(delayed={"a": NOW - 5}))
    found = await pauses(shard, connection, 12)
    assert found[0] == OVERDUE_SECONDS, "somebody may take the hint, and die"
    assert found[1:] == sorted(found[1:])
    assert (found[1], found[-1]) == (OVERDUE_SECONDS / 4, RARELY_SECONDS)
    first = shard.run(shard.commands.claim(0, 10, LEASE_MS))
    assert (len(first.leases), shard.whole().alarm) == (1, 1), (
        "who comes back rings, and what falls due next is told"
    )
    assert await pauses(shard, connection, 1) == [TICK_SECONDS]


async def test_as_many_in_flight_as_may_be_are_looked_at_rarely(
    shard: Shard, connection: AsyncConnection
) -> None:
    shard.seed(State(delayed={"a": NOW - 5}, processing={"b:1": NOW + LEASE_MS}))
    assert await pauses(shard, connection, 3, max_in_flight=1) == [RARELY_SECONDS] * 3


async def test_what_falls_due_next_while_nobody_can_take_it_is_told_soon_though_not_to_the_ms(
    shard: Shard, connection: AsyncConnection
) -> None:
    """By then somebody may be there again, who has left nothing due and no hint to tell us by."""
    shard.seed(State(delayed={"a": NOW - 5, "b": NOW + 1, "c": NOW + 300}))
    assert (await pauses(shard, connection, 9))[-1] == OVERDUE_SECONDS
    shard.clock(NOW + 100)
    assert 0.19 < (await pauses(shard, connection, 9))[-1] <= 0.2
    shard.redis.zadd(shard.keys.processing, {"d:1": NOW + LEASE_MS})
    assert 0.19 < (await pauses(shard, connection, 1, max_in_flight=1))[0] <= 0.2


async def _nobody(_: object) -> None:
    """Listen to nothing."""


def test_leases_that_a_clock_left_too_long_are_shortened_however_often_that_fails(shard: Shard) -> None:
    """The leader learns that Redis' clock stepped back; the call that follows may meet a Redis that is away."""
    failing = ["gone", "still gone"]

    def run(call: Call[Any]) -> Any:  # noqa: ANN401
        if call.script.name == "clamp_leases" and failing:
            raise Unavailable("test", failing.pop())
        return shard.run(call)

    paced: Any = Connection()
    listener: Any = SimpleNamespace(listen=_nobody)
    leading = LeaderElection(
        *(ShardGroup(shard.commands), paced),
        owner="me",
        spec=spec(),
        listener=listener,
        led=lambda: {0},
    )
    leading.watch(0, SimpleNamespace(leads=False, alarm=Alarm()))
    stepping = Stepping(run, leading.step)
    shard.seed(State(processing={"a:1": NOW + HOUR_MS + LEASE_MS}))
    shard.clock(NOW + HOUR_MS)
    stepping.whole()
    shard.clock(NOW)
    for _ in range(2):
        stepping.whole()
        assert shard.whole().processing == {"a:1": NOW + HOUR_MS + LEASE_MS}
    stepping.whole()
    assert shard.whole().processing["a:1"] <= NOW + spec().delivery.lease_duration_seconds * 1000 + 1000
