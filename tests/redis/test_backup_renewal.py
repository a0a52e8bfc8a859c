"""What the thread does for a worker whose event loop is blocked: which leases it renews, which tasks it returns."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection import Address
from delayq.protocol.results import Ticket
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup
from delayq.worker.backup_renewal import BackupRenewal
from delayq.worker.exchange import Claim, ClaimConnection, Exchange
from delayq.worker.executor import Executor
from delayq.worker.lease_renewal import CLEANUP_SECONDS
from delayq.worker.settlements import Settlement
from delayq.worker.slots import GroupState, Running, Slots

from tests.redis.state import NOW, PLENTY, Shard, State, envelope
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.connection import AsyncConnection
    from delayq.protocol.envelope import Task

LEASE_MS = spec().delivery.lease_duration_seconds * 1000
HALF, LEASE = LEASE_MS / 2000, LEASE_MS / 1000
TIMEOUT = spec().delivery.handler_timeout_seconds
SHORT_MS = 1_000  # of the leases that a test claims: what is renewed has the whole lease


class Blocked:
    """A worker whose loop does not run, with tasks that it has claimed."""

    def __init__(self, shard: Shard, url: str) -> None:
        self.shard = shard
        self.slots = Slots(spec(), WorkerCounters("worker", "q"))
        self.state = GroupState(self.slots, ShardGroup(shard.commands))
        self.ran: list[str] = []
        self.executor = Executor(self._run, self.slots.delivery, self.slots.counters)
        self.backup = BackupRenewal(self.slots, shard.commands, Address.from_url(url), self.executor)

    async def _run(self, task: Task) -> None:
        self.ran.append(task.id)

    def claim(self, task_id: str, age: float = HALF) -> Running:
        """One task, which has not begun, whose lease was renewed so long ago."""
        task = (task_id, "+0", envelope()[:-6])
        self.shard.run(self.shard.commands.schedule(0, task, if_exists="keep", repeated=0, **PLENTY))
        [lease] = self.shard.run(self.shard.commands.claim(0, 1, SHORT_MS)).leases
        running = Running(lease, time.monotonic() - age, float("inf"))
        self.state.begin(running)
        return running

    def begun(self, task_id: str, seconds_ago: float, age: float = HALF) -> Running:
        running = self.claim(task_id, age)
        running.begun_at = time.monotonic() - seconds_ago
        return running

    async def step(self, blocked_seconds: float) -> None:
        self.backup.begin(asyncio.get_running_loop(), time.monotonic() - blocked_seconds)
        await self.backup.step()
        await asyncio.sleep(0)  # it lets the loop count

    def renewed(self) -> set[str]:
        found = self.shard.whole().processing
        return {member.rpartition(":")[0] for member, expiry in found.items() if expiry == NOW + LEASE_MS}


@asynccontextmanager
async def blocking(shard: Shard, url: str) -> AsyncIterator[Blocked]:
    blocked = Blocked(shard, url)
    yield blocked
    await blocked.backup.close()


async def test_a_lease_is_renewed_when_half_of_it_is_over_until_the_timeout_of_its_task(
    shard: Shard, redis_url: str
) -> None:
    bound = TIMEOUT + CLEANUP_SECONDS
    async with blocking(shard, redis_url) as worker:
        worker.begun("young", 1, age=HALF - 1)
        old = worker.begun("old", bound - 1)
        worker.begun("over", bound + 1)
        await worker.step(10)
        assert worker.renewed() == {"old"}
        assert worker.slots.counters.extended == 1
        assert time.monotonic() - old.extended_at < HALF
        assert worker.backup.keeps_until == pytest.approx(
            time.monotonic() + TIMEOUT + CLEANUP_SECONDS - 1, abs=5
        )


async def test_the_lease_of_a_result_that_waits_or_is_on_its_way_is_renewed_too(
    shard: Shard, redis_url: str, connection: AsyncConnection
) -> None:
    async with blocking(shard, redis_url) as worker:
        ended = {name: worker.begun(name, 5) for name in ("waiting", "refused", "sent", "late")}
        ended["late"].begun_at -= TIMEOUT + CLEANUP_SECONDS
        for running in ended.values():
            worker.state.ended(running, Settlement("ack", running.lease))
        outbox = worker.state.outbox
        waiting, refused, sent, late = outbox.waiting
        outbox.waiting, outbox.refused = [waiting, late], [refused]
        over, reservation = ClaimConnection(connection), worker.state.begin_exchange(0)
        worker.state.exchanges.append(
            Exchange(over, [(Any, [sent])], [], [], reservation, time.monotonic(), Any)  # type: ignore[list-item,arg-type]
        )
        await worker.step(10)
        assert worker.renewed() == {"waiting", "refused", "sent"}


async def test_tasks_that_have_not_begun_are_kept_for_one_lease_and_then_released_uncharged(
    shard: Shard, redis_url: str
) -> None:
    """The loop, when it comes back, neither runs nor settles them."""
    async with blocking(shard, redis_url) as worker:
        waiting = worker.claim("waiting")
        worker.begun("begun", LEASE + 1)
        await worker.step(LEASE - 1)
        assert worker.renewed() == {"waiting", "begun"}
        assert not waiting.handed_back
        await worker.step(LEASE + 1)
        assert set(shard.whole().delayed) == {"waiting"}
        assert shard.whole().attempts == {}
        assert worker.slots.counters.settled["released"] == 1
        assert await worker.executor.run(waiting) is None
        assert worker.ran == []
        await worker.step(LEASE + 2)
        assert set(shard.whole().delayed) == {"waiting"}


async def test_a_task_that_could_not_be_released_is_released_by_the_loop(
    shard: Shard, redis_url: str
) -> None:
    async with blocking(shard, redis_url) as worker:
        waiting = worker.claim("waiting")
        shard.redis.set(shard.keys.delayed, "not a zset")
        with pytest.raises(Exception, match="WRONGTYPE"):
            await worker.step(LEASE + 1)
        settlement = await worker.executor.run(waiting)
    assert settlement is not None
    assert (settlement.verb, worker.ran) == ("release", [])


async def test_a_task_that_starts_before_its_release_keeps_its_lease(shard: Shard, redis_url: str) -> None:
    """The loop reads `handed_back` before the thread sets it, and the thread then reads that the task has begun."""
    async with blocking(shard, redis_url) as worker:
        running = worker.claim("task")
        running.begun_at = time.monotonic()
        await worker.step(LEASE + 1)
        assert worker.renewed() == {"task"}
        assert running.cancelled_for is None


async def test_a_task_whose_lease_was_lost_before_it_began_does_not_begin(
    shard: Shard, redis_url: str
) -> None:
    async with blocking(shard, redis_url) as worker:
        waiting = worker.claim("waiting")
        shard.redis.delete(shard.keys.processing)
        await worker.step(10)
        assert await worker.executor.run(waiting) is None
        assert worker.ran == []


async def test_the_tasks_of_a_claim_that_the_loop_has_not_read_are_returned(
    shard: Shard, redis_url: str, connection: AsyncConnection
) -> None:
    """Only of a claim that is half a lease old. The loop takes its answer for a lost one."""
    async with blocking(shard, redis_url) as worker:
        shard.seed(State(delayed={"task": NOW}))
        over = ClaimConnection(connection)
        ticket = Ticket(over.tickets.claimer, 1, NOW + 60_000)
        claim = Claim(shard.commands.claim(0, 1, LEASE_MS, ticket=ticket), 0, 1, ticket)
        shard.run(claim.call)
        young, old = (worker.state.begin_exchange(1) for _ in range(2))
        for reservation, age in ((young, HALF - 1), (old, HALF)):
            sent_at = time.monotonic() - age
            claiming = [] if reservation is young else [claim]
            worker.state.exchanges.append(Exchange(over, [], [], claiming, reservation, sent_at, Any))  # type: ignore[arg-type]
        await worker.step(HALF)
        assert set(shard.whole().delayed) == {"task"}
        assert (young.claims_returned, old.claims_returned) == (False, True)


async def test_nothing_connects_before_a_lease_is_half_over(shard: Shard, redis_url: str) -> None:
    async with blocking(shard, redis_url) as worker:
        worker.begun("task", 1, age=HALF - 1)
        await worker.step(10)
        assert worker.backup._connection is None
        assert shard.redis.hget(shard.keys.stats, "blocked_at") is None
        worker.begun("other", 1)
        await worker.step(10)
        assert int(shard.redis.hget(shard.keys.stats, "blocked_at") or 0) == NOW
