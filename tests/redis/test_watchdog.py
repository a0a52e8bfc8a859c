"""The watchdog: leases are extended in batches, all in one round trip, and the lost ones are found in each."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection import Address, AsyncConnection
from delayq.errors import DelayQError
from delayq.protocol.commands import BATCH, CLAIM_LIMIT, Broker
from delayq.service.counters import WorkerTally
from delayq.service.shard_groups import Lane
from delayq.worker.executor import Runner
from delayq.worker.lease_renewal import CLEANUP_SECONDS, Watchdog
from delayq.worker.slots import Desk, Running, Slots

from tests.redis.state import NOW, PLENTY, Shard, State, envelope
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.protocol.commands import Call
    from delayq.protocol.envelope import Task
    from delayq.protocol.write_durability import Behind
    from delayq.worker.slots import CancelReason


class Recorded(AsyncConnection):
    """A connection that remembers how many leases each call of each round trip was about."""

    def __init__(self, url: str) -> None:
        super().__init__(Address.from_url(url))
        self.trips: list[list[int]] = []

    async def answers(self, calls: Sequence[Call[Any]], behind: Behind | None = None) -> list[Any]:
        self.trips.append([sum(isinstance(argument, bytes) for argument in call.arguments) for call in calls])
        return await super().answers(calls, behind)


def hold(desk: Desk, shard: Shard, count: int) -> list[str]:
    """Fill slots with tasks whose leases are due to be extended."""
    shard.seed(State(delayed={f"id-{nth:03}": NOW for nth in range(count)}))
    now = time.monotonic()
    while leases := shard.run(shard.broker.claim(0, CLAIM_LIMIT, 1)).leases:
        for lease in leases:
            desk.begin(Running(lease, now - 3600, now + 3600))
    return [member.decode() for member in desk.running]


def desk_of(shard: Shard) -> Desk:
    return Desk(Slots(spec(), WorkerTally("worker", "q")), Lane(shard.broker))


def watchdog(desk: Desk, broker: Broker, connection: AsyncConnection) -> Watchdog:
    return Watchdog(desk, broker, connection, Runner(_no_call, desk.slots.delivery, desk.slots.tally))


async def _no_call(_task: Task) -> None:
    raise AssertionError("nothing is to be run here")


@pytest.mark.parametrize(
    ("reason", "late_seconds", "kept"),
    [
        (None, 0, True),
        ("drain", 0, True),
        ("timeout", 0, True),
        ("lease_lost", 0, False),
    ],
)
async def test_a_task_is_kept_while_its_handler_cleans_up(
    shard: Shard, redis_url: str, reason: CancelReason | None, late_seconds: float, *, kept: bool
) -> None:
    desk = desk_of(shard)
    hold(desk, shard, 1)
    for running in desk.running.values():
        running.cancelled_for, running.deadline = reason, time.monotonic() - late_seconds
    connection = Recorded(redis_url)
    await watchdog(desk, shard.broker, connection).step()
    await connection.close()
    assert bool(connection.trips) is kept


async def test_many_leases_are_extended_a_batch_a_call_in_one_round_trip(
    shard: Shard, redis_url: str
) -> None:
    desk = desk_of(shard)
    slots = desk.slots
    members = hold(desk, shard, 2 * BATCH + 100)
    lost = {members[7], members[BATCH], members[-1]}
    shard.seed(State(processing={member: NOW + 1 for member in members if member not in lost}))
    connection = Recorded(redis_url)
    await watchdog(desk, shard.broker, connection).step()
    await connection.close()
    assert connection.trips == [[BATCH, BATCH, 100]]
    lease_ms = slots.delivery.lease_seconds * 1000
    assert shard.whole().processing == {member: NOW + lease_ms for member in members if member not in lost}
    assert (slots.tally.extended, slots.tally.leases_lost) == (len(members) - 3, 3)


async def test_a_shard_that_fails_hides_no_lost_lease_of_another(shard: Shard, redis_url: str) -> None:
    """Its handler is cancelled all the same, and the failure is raised afterwards."""
    broker = Broker(shard.broker.queue, shards=2)
    desk = Desk(Slots(spec(), WorkerTally("worker", "q")), Lane(broker))
    now, handling = time.monotonic(), list[asyncio.Task[None]]()
    for index in (0, 1):
        task = (f"id-{index}", "+0", envelope()[:-6])
        shard.run(broker.schedule(index, task, if_exists="keep", repeated=0, **PLENTY))
        [lease] = shard.run(broker.claim(index, 1, 1000)).leases
        handling.append(asyncio.create_task(asyncio.sleep(60)))
        desk.begin(Running(lease, now - 3600, now + 3600, handling[index]))
    broken, lost = desk.running.values()
    shard.redis.set(shard.keys.processing, "not a zset")
    shard.run(broker.ack(1, [lost.lease.member]))
    connection = AsyncConnection(Address.from_url(redis_url))
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        await watchdog(desk, broker, connection).step()
    await connection.close()
    assert (broken.cancelled_for, lost.cancelled_for) == (None, "lease_lost")
    for each in handling:
        each.cancel()
    await asyncio.wait(handling)


@pytest.mark.parametrize("reason", ["timeout", "lease_lost"])
async def test_a_handler_that_ignores_its_cancellation_is_given_up(
    shard: Shard, redis_url: str, reason: CancelReason
) -> None:
    """A task that took too long has failed, one whose lease was lost is somebody else's; the slot stays used."""
    desk = desk_of(shard)
    slots = desk.slots
    free = slots.free
    hold(desk, shard, 1)
    [running] = desk.running.values()
    running.cancelled_for, running.deadline = reason, time.monotonic() - CLEANUP_SECONDS + 60
    running.extended_at = running.deadline - slots.delivery.lease_seconds
    connection = Recorded(redis_url)
    dog = watchdog(desk, shard.broker, connection)
    await dog.step()
    assert list(desk.running.values()) == [running]  # it may be cleaning up
    running.deadline -= 60
    running.extended_at -= 60
    await dog.step()
    await connection.close()
    assert (desk.running, slots.running, slots.free) == ({}, {}, free - 1)
    verbs = [settlement.verb for settlement in desk.outbox.waiting]
    assert verbs == (["retry"] if reason == "timeout" else [])
    desk.ended(running, None)
    assert (slots.free, len(desk.outbox.waiting)) == (free, len(verbs))
