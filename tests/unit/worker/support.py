"""A worker without Redis: a test says what its claims return, and what it would settle."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, AsyncConnection
from delayq.handlers.base import NO_BATCHES
from delayq.protocol.commands import Commands
from delayq.protocol.results import Claimed, Lease, Leases
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup
from delayq.worker.exchange import Leased
from delayq.worker.executor import Executor
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.slots import GroupState, Running, Slots
from delayq.worker.task_starter import TaskStarter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.contract import DelayQueue
    from delayq.handlers.base import Batch, Kinds
    from delayq.worker.executor import HandlerCall
    from delayq.worker.settlements import Settlement


def lacking(call: Callable[..., Any], after: int) -> Callable[..., Any]:
    """Return what fails once, as code does for which no memory is left, after so many calls."""
    calls = count()

    def failing(*args: Any, **named: Any) -> Any:  # noqa: ANN401  as the call
        if next(calls) == after:
            raise MemoryError
        return call(*args, **named)

    return failing


class Worker:
    """What starts, runs and renews the tasks of one shard group."""

    def __init__(
        self,
        queue: DelayQueue,
        call: HandlerCall,
        kinds: Kinds | None = None,
        batches: Mapping[tuple[str, int], Batch] = NO_BATCHES,
    ) -> None:
        self.counters = WorkerCounters("worker", "orders")
        self.slots = Slots(queue.spec, self.counters)
        runner = Executor(call, queue.spec.delivery, self.counters, kinds, batches=batches)
        commands, connection = Commands("orders"), AsyncConnection(Address.from_url("redis://unused"))
        self.group_state = GroupState(self.slots, ShardGroup(commands))
        self._starter = TaskStarter(self.group_state, runner)
        self.renewal = LeaseRenewal(self.group_state, commands, connection, runner)

    def claimed(self, *leases: Lease, now_ms: int = 0, isolated: bool = False) -> list[Running]:
        """Let one claim return these; returns the tasks that begin."""
        first = len(self.slots.running)
        self.receive(*leases, now_ms=now_ms, isolated=isolated)
        self.start()
        return list(self.slots.running.values())[first:]

    def receive(self, *leases: Lease, now_ms: int = 0, isolated: bool = False) -> None:
        """Let one claim return these, without starting them."""
        answer = Claimed(now_ms, len(leases), decode=lambda: Leases([*leases], []))
        self._leased = Leased(answer, time.monotonic(), isolated)

    def start(self) -> None:
        """Start what the last claim returned, again after an error."""
        self._starter.start(self._leased)

    async def settled(self) -> list[Settlement]:
        """Wait until every handler has ended, and return the pending settlements."""
        async with asyncio.timeout(5):
            while self.slots.running:  # noqa: ASYNC110 -- nothing to wait for
                await asyncio.sleep(0)
        assert self.slots.free == self.slots.total, "a slot is lost"
        return self.group_state.outbox.waiting
