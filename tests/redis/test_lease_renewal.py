"""The lease renewal: leases are extended in batches, all in one round trip, and the lost ones are found in each."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq.errors import DelayQError
from delayq.protocol.commands import BATCH, CLAIM_LIMIT, Commands
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup
from delayq.worker.executor import Executor
from delayq.worker.lease_renewal import CLEANUP_SECONDS, LeaseRenewal
from delayq.worker.slots import GroupState, Running, Slots

from tests.redis.state import NOW, PLENTY, Shard, State, envelope
from tests.redis.test_reaper import spec
from tests.redis.working import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.connection import AsyncConnection
    from delayq.protocol.envelope import Task
    from delayq.worker.slots import CancelReason


def hold(group_state: GroupState, shard: Shard, count: int) -> list[str]:
    """Fill slots with tasks whose leases are due to be extended."""
    shard.seed(State(delayed={f"id-{nth:03}": NOW for nth in range(count)}))
    now = time.monotonic()
    while leases := shard.run(shard.commands.claim(0, CLAIM_LIMIT, 1)).leases:
        for lease in leases:
            group_state.begin(Running(lease, now - 3600, now + 3600))
    return [member.decode() for member in group_state.running]


@asynccontextmanager
async def recorded(url: str) -> AsyncIterator[Recorded]:
    connection = Recorded(url)
    yield connection
    await connection.close()


def state_of(commands: Commands) -> GroupState:
    return GroupState(Slots(spec(), WorkerCounters("worker", "q")), ShardGroup(commands))


def lease_renewal(group_state: GroupState, commands: Commands, connection: AsyncConnection) -> LeaseRenewal:
    return LeaseRenewal(
        group_state,
        commands,
        connection,
        Executor(_no_call, group_state.slots.delivery, group_state.slots.counters),
    )


async def _no_call(_task: Task) -> None:
    raise AssertionError("no task may run here")


@pytest.mark.parametrize(
    ("reason", "kept"), [(None, True), ("drain", True), ("timeout", True), ("lease_lost", False)]
)
async def test_a_task_is_kept_while_its_handler_cleans_up(
    shard: Shard, redis_url: str, reason: CancelReason | None, *, kept: bool
) -> None:
    group_state = state_of(shard.commands)
    hold(group_state, shard, 1)
    for running in group_state.running.values():
        running.cancelled_for, running.deadline = reason, time.monotonic()
    async with recorded(redis_url) as connection:
        await lease_renewal(group_state, shard.commands, connection).step()
    assert bool(connection.trips) is kept


async def test_many_leases_are_extended_a_batch_a_call_in_one_round_trip(
    shard: Shard, redis_url: str
) -> None:
    group_state = state_of(shard.commands)
    slots = group_state.slots
    members = hold(group_state, shard, 2 * BATCH + 100)
    lost = {members[7], members[BATCH], members[-1]}
    shard.seed(State(processing={member: NOW + 1 for member in members if member not in lost}))
    async with recorded(redis_url) as connection:
        await lease_renewal(group_state, shard.commands, connection).step()
    [calls] = connection.trips
    assert [sum(isinstance(each, bytes) for each in call.arguments) for call in calls] == [BATCH, BATCH, 100]
    lease_ms = slots.delivery.lease_duration_seconds * 1000
    assert shard.whole().processing == {member: NOW + lease_ms for member in members if member not in lost}
    assert (slots.counters.extended, slots.counters.leases_lost) == (len(members) - 3, 3)


async def test_a_shard_that_fails_hides_no_lost_lease_of_another(
    shard: Shard, connection: AsyncConnection
) -> None:
    """Its handler is cancelled all the same, and the failure is raised afterwards."""
    commands = Commands(shard.commands.queue, shards=2)
    group_state = state_of(commands)
    now, handling = time.monotonic(), list[asyncio.Task[None]]()
    for index in (0, 1):
        task = (f"id-{index}", "+0", envelope()[:-6])
        shard.run(commands.schedule(index, task, if_exists="keep", repeated=0, **PLENTY))
        [lease] = shard.run(commands.claim(index, 1, 1000)).leases
        handling.append(asyncio.create_task(asyncio.sleep(60)))
        group_state.begin(Running(lease, now - 3600, now + 3600, handling[index]))
    broken, lost = group_state.running.values()
    shard.redis.set(shard.keys.processing, "not a zset")
    shard.run(commands.ack(1, [lost.lease.member]))
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        await lease_renewal(group_state, commands, connection).step()
    assert (broken.cancelled_for, lost.cancelled_for) == (None, "lease_lost")
    for each in handling:
        each.cancel()
    await asyncio.wait(handling)


@pytest.mark.parametrize("reason", ["timeout", "lease_lost"])
async def test_a_handler_that_ignores_its_cancellation_is_given_up(
    shard: Shard, connection: AsyncConnection, reason: CancelReason
) -> None:
    """A task that took too long has failed; one whose lease was lost belongs to another worker; the slot stays used."""
    group_state = state_of(shard.commands)
    slots = group_state.slots
    free = slots.free
    hold(group_state, shard, 1)
    [running] = group_state.running.values()
    running.cancelled_for, running.deadline = reason, time.monotonic() - CLEANUP_SECONDS + 60
    running.extended_at = running.deadline - slots.delivery.lease_duration_seconds
    renewal = lease_renewal(group_state, shard.commands, connection)
    await renewal.step()
    assert list(group_state.running.values()) == [running]  # it may still clean up
    running.deadline -= 60
    running.extended_at -= 60
    await renewal.step()
    assert (group_state.running, slots.running, slots.free) == ({}, {}, free - 1)
    verbs = [settlement.verb for settlement in group_state.outbox.waiting]
    assert verbs == (["retry"] if reason == "timeout" else [])
    group_state.ended(running, None)
    assert (slots.free, len(group_state.outbox.waiting)) == (free, len(verbs))
