"""The scanner of a shard, step by step, on a real Redis: it polls often only where that can change something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delayq.contract import Limits
from delayq.errors import Unavailable
from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import Commands
from delayq.scanner.leader_election import Candidate, LeaderElection
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


looked_at: list[int] = []  # shards whose schedules' time had come


async def pauses(shard: Shard, connection: AsyncConnection, steps: int, **limits: int) -> list[float]:
    commands = Commands(shard.commands.queue, limits=Limits(**limits))
    scanner = ShardScanner(0, commands, connection, spec=spec(), on_look=looked_at.append)
    scanner.leads = True
    return [await scanner.step() for _ in range(steps)]


async def test_a_wake_token_that_no_worker_takes_is_checked_ever_more_rarely(
    shard: Shard, connection: AsyncConnection
) -> None:
    """Every worker is busy or on hold, or none runs: the token stays for the first one that is free."""
    shard.seed(State(delayed={"a": NOW - 5}))
    found = await pauses(shard, connection, 12)
    assert found[0] == OVERDUE_SECONDS, "a worker may take the token and crash"
    assert found[1:] == sorted(found[1:])
    assert (found[1], found[-1]) == (OVERDUE_SECONDS / 4, RARELY_SECONDS)
    first = shard.run(shard.commands.claim(0, 10, LEASE_MS))
    assert (len(first.leases), shard.whole().alarm) == (1, 1), "the worker that takes it wakes the scanner"
    assert await pauses(shard, connection, 1) == [TICK_SECONDS]


async def test_a_shard_at_its_limit_is_checked_rarely(shard: Shard, connection: AsyncConnection) -> None:
    shard.seed(State(delayed={"a": NOW - 5}, processing={"b:1": NOW + LEASE_MS}))
    assert await pauses(shard, connection, 3, max_in_flight=1) == [RARELY_SECONDS] * 3


async def test_a_task_that_falls_due_while_every_worker_is_busy_wakes_one_soon(
    shard: Shard, connection: AsyncConnection
) -> None:
    """By then a worker may be free again that has claimed everything due and left no wake token."""
    shard.seed(State(delayed={"a": NOW - 5, "b": NOW + 1, "c": NOW + 300}))
    assert (await pauses(shard, connection, 9))[-1] == OVERDUE_SECONDS
    shard.clock(NOW + 100)
    assert 0.19 < (await pauses(shard, connection, 9))[-1] <= 0.2
    shard.redis.zadd(shard.keys.processing, {"d:1": NOW + LEASE_MS})
    assert 0.19 < (await pauses(shard, connection, 1, max_in_flight=1))[0] <= 0.2


async def _silent(_: object) -> None:
    """Receive no wake tokens."""


def test_leases_that_a_clock_left_too_long_are_shortened_however_often_that_fails(shard: Shard) -> None:
    """The leader notices that Redis' clock stepped back; Redis may be unreachable for the call that follows."""
    failing = ["gone", "still gone"]

    def run(call: Call[Any]) -> Any:  # noqa: ANN401
        if call.script.name == "clamp_leases" and failing:
            raise Unavailable("test", failing.pop())
        return shard.run(call)

    paced: Any = Connection()
    listener: Any = SimpleNamespace(listen=_silent)
    leading = LeaderElection(
        *(ShardGroup(shard.commands), paced),
        candidate=Candidate("me", ""),
        spec=spec(),
        listener=listener,
        led=lambda: {0},
        recovery=None,
        changed=Alarm(),
    )
    watch: Any = SimpleNamespace(leads=False, alarm=Alarm())
    leading.watch(0, watch)
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
