"""The worker: claims due tasks into free slots, runs them, settles them, and stops without killing work.

A task is never held before it is due, so memory is what the slots hold and no more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq.connection import AsyncConnection, BlockingReads
from delayq.errors import DelayQError
from delayq.resharding import ShardMapSync
from delayq.service.counters import WorkerCounters
from delayq.service.service_manager import ServiceManager
from delayq.worker.claim_loop import ClaimLoop
from delayq.worker.executor import Executor
from delayq.worker.guard_breaker import GuardBreaker
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.slots import GroupState, Slots
from delayq.worker.wake_listener import Listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.guards import Guard
    from delayq.protocol.commands import Commands
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.executor import HandlerCall

log = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0  # for handlers to clean up once they are told to stop
FLUSH_SECONDS = 5.0  # for Redis to take what is still to be settled


class GroupParts(NamedTuple):
    """What a worker has for one shard group."""

    group_state: GroupState
    listener: Listener
    blocking_reads: BlockingReads


class Worker:
    """One worker process' services."""

    def __init__(
        self,
        spec: Spec,
        commands: Commands,
        address: Address,
        call: HandlerCall,
        *,
        guard: Guard[Any] | None = None,
    ) -> None:
        """Nothing is connected before run(). `call` is the handler's, under the guard if there is one."""
        self.counters = WorkerCounters("worker", commands.queue)
        self.slots = Slots(spec, self.counters)
        self._commands, self._address = commands, address
        self._drain_seconds = spec.worker.drain_timeout_seconds
        self.stop_seconds = self._drain_seconds + CANCEL_SECONDS + 2 * FLUSH_SECONDS
        # The lease renewal has a connection of its own: a large claim must not hold up a lease's extension.
        self._connection, self._watch_connection = AsyncConnection(address), AsyncConnection(address)
        self._tables: dict[ShardGroup, GroupParts] = {}
        guard_breaker = None if guard is None else GuardBreaker(guard, self.slots)
        if guard_breaker is not None:
            call = guard_breaker.around(call)
        self._runner = Executor(call, spec.delivery, self.counters)
        self.services = ServiceManager(self, commands, self.counters, apart=address.apart)
        if guard_breaker is not None:
            self.services.add(guard_breaker)
        self.services.add(ShardMapSync(commands, self._watch_connection))
        self.services.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""
        return self.services.loops

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Claim from a shard group, and settle there."""
        group_state, blocking_reads = GroupState(self.slots, group), BlockingReads(self._address)
        listener = Listener(group_state, self._commands, blocking_reads)
        self._tables[group] = GroupParts(group_state, listener, blocking_reads)
        return (
            ClaimLoop(group_state, self._commands, self._connection, self._runner),
            listener,
            LeaseRenewal(group_state, self._commands, self._watch_connection, self._runner),
        )

    async def closed(self, group: ShardGroup) -> bool:
        """Leave a shard group once what we hold of it is settled."""
        table = self._tables[group]
        if not table.group_state.idle:
            return False
        table.group_state.close()
        del self._tables[group]
        await table.blocking_reads.close()
        return True

    async def changed(self) -> None:
        """Listen for the shards there are now."""
        for table in self._tables.values():
            table.group_state.exchange_alarm.ring()
            await table.listener.changed()

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Work until `stop`, then drain; `hurry` ends the draining early."""
        self.services.start()
        try:
            await stop.wait()
            self.slots.draining = True
            fields = {"running": len(self.slots.running), "seconds": self._drain_seconds}
            log.info("drain_started", extra={"fields": fields})
            # At the same time: a Redis that does not answer must not use up the time that handlers are given.
            await asyncio.gather(self._stop_listening(), self._finish_running(hurry))
            await self._flush()
        finally:
            await self.services.end(finish=self._loops_of(ClaimLoop), seconds=FLUSH_SECONDS)
            blocking_reads = (table.blocking_reads.close() for table in self._tables.values())
            await asyncio.gather(self._connection.close(), self._watch_connection.close(), *blocking_reads)

    def _loops_of(self, kind: type) -> list[Loop]:
        return [loop for loop in self.loops if isinstance(loop.service, kind)]

    async def _stop_listening(self) -> None:
        """Stop blocking on hints, and pass on those that may have been on their way to us."""
        await self.services.drop(*self._loops_of(Listener))
        wakes = [self._commands.wake(keys.shard) for keys in self._commands.shards]
        try:
            await self._watch_connection.run(wakes)
        except DelayQError as error:
            log.warning("wake_not_forwarded", extra={"fields": {"error": str(error)}})

    async def _finish_running(self, hurry: asyncio.Event) -> None:
        """Let handlers finish within the drain timeout; hand back the tasks of those that do not."""
        running, started = self.slots.running, time.monotonic()
        await self._wait_empty(self._drain_seconds, hurry)
        if running:
            log.warning("tasks_handed_back", extra={"fields": {"tasks": len(running)}})
            for each in list(running.values()):
                each.cancel("drain")
            await self._wait_empty(CANCEL_SECONDS, asyncio.Event())
        for each in running.values():
            log.error("cancellation_ignored", extra={"fields": {"task_id": each.lease.task.id}})
        log.info("drained", extra={"fields": {"seconds": round(time.monotonic() - started, 3)}})

    async def _wait_empty(self, seconds: float, hurry: asyncio.Event) -> None:
        self.slots.empty.clear()
        self.slots.check_empty()
        waits = {asyncio.create_task(self.slots.empty.wait()), asyncio.create_task(hurry.wait())}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _flush(self) -> None:
        """Let the exchange deliver every settlement; what Redis does not take in time, its lease will recover.

        A claim may still be under way, when draining was hurried: what it brings is handed back here, too.
        """
        slots, deadline = self.slots, time.monotonic() + FLUSH_SECONDS
        while slots.settling and time.monotonic() < deadline:
            slots.ring()
            await asyncio.sleep(0.01)
        if slots.unconfirmed:
            log.error("settle_failed", extra={"fields": {"tasks": slots.unconfirmed}})
