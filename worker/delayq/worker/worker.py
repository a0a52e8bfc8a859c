"""The worker: claims due tasks into free slots, runs and settles them, and drains before it stops.

It never claims a task before its due time, so only the slots use memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq.connection import AsyncConnection, BlockingReads
from delayq.errors import DelayQError
from delayq.guards.coverage import EVERY_TASK
from delayq.handlers.base import NO_BATCHES
from delayq.resharding import ShardMapSync
from delayq.service import logs
from delayq.service.counters import CountersByKind, WorkerCounters
from delayq.service.service_manager import ServiceManager
from delayq.worker.awaited_files import AwaitedFiles
from delayq.worker.backup_renewal import BackupRenewal
from delayq.worker.claim_loop import ClaimLoop
from delayq.worker.executor import Executor
from delayq.worker.guard_breaker import GuardBreaker
from delayq.worker.kinds_publication import KindsPublication
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.slot_limit import SlotLimit
from delayq.worker.slots import GroupState, Slots
from delayq.worker.suspension import SuspensionGate
from delayq.worker.unparking import Unparking
from delayq.worker.wake_listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.contract.files import Reference
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.handlers.base import Batch, Kinds
    from delayq.protocol.commands import Commands
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import ShardGroup
    from delayq.worker.executor import HandlerCall

log = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0  # for handlers to clean up after their cancellation
FLUSH_SECONDS = 5.0  # to send the remaining settlements


class GroupParts(NamedTuple):
    """A worker's objects for one shard group."""

    group_state: GroupState
    listener: Listener
    blocking_reads: BlockingReads


class Worker:
    """The services of one worker process."""

    def __init__(
        self,
        spec: Spec,
        commands: Commands,
        address: Address,
        call: HandlerCall,
        *,
        guard: Guard[Any] | None = None,
        coverage: Coverage = EVERY_TASK,
        kinds: Kinds | None = None,
        batches: Mapping[tuple[str, int], Batch] = NO_BATCHES,
    ) -> None:
        """Connect nothing before run(). `call` calls the handler, under the guard if there is one.

        `coverage` are the tasks that the guard applies to. `kinds` and `batches` are those of the handler.
        """
        names = {name for name, _ in kinds or () if name}
        self.counters = WorkerCounters("worker", commands.queue, kinds=CountersByKind(names))
        largest_batch = max((each.limit for each in batches.values()), default=0)
        self.slots = Slots(spec, self.counters, largest_batch)
        self._commands, self._address = commands, address
        self._drain_seconds = spec.worker.drain_timeout_seconds
        self.stop_seconds = self._drain_seconds + CANCEL_SECONDS + 2 * FLUSH_SECONDS
        # Exchanges overlap over two connections. In a Cluster those of the shard groups overlap over one.
        self._connections = [AsyncConnection(address) for _ in range(1 if address.is_cluster else 2)]
        # Lease renewal has its own connection: a large claim must not delay it.
        self._renewal_connection = AsyncConnection(address)
        self._parts: dict[ShardGroup, GroupParts] = {}
        guard_breaker = None if guard is None else GuardBreaker(guard, self.slots, coverage)
        if guard_breaker is not None:
            call = guard_breaker.around(call)
            batches = {
                kind: each._replace(call=guard_breaker.around_batch(each.call))
                if kind[0] in coverage
                else each
                for kind, each in batches.items()
            }
        self._slot_limit = SlotLimit(self.slots, lambda: self.services.loops)
        self._runner = Executor(
            call, spec.delivery, self.counters, kinds, batches=batches, lacking=self._slot_limit.note
        )
        self.backup_renewal = BackupRenewal(self.slots, commands, address, self._runner)
        self.services = ServiceManager(self, commands, self.counters, is_cluster=address.is_cluster)
        if guard_breaker is not None:
            self.services.add(guard_breaker)
        self.services.add(self._slot_limit)
        gate = SuspensionGate(self.slots)
        self.services.add(ShardMapSync(commands, self._renewal_connection, note=gate.note))
        self.services.add(Unparking(commands, self._renewal_connection, self.slots, kinds))
        self.services.open()

    def await_files(self, lacks: Callable[[], Mapping[Reference, str]]) -> None:
        """Claim nothing until `lacks`, which looks at the handler's mounted files, returns nothing."""
        if lacks():
            self.services.add(AwaitedFiles(lacks, self.slots))

    def publish(self, kinds: str) -> None:
        """Publish the kinds of an App, as text."""
        self.services.add(KindsPublication(self._commands, self._renewal_connection, kinds))

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops that probes check."""
        return self.services.loops

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Return the services of a new shard group."""
        group_state, blocking_reads = GroupState(self.slots, group), BlockingReads(self._address)
        listener = Listener(group_state, self._commands, blocking_reads)
        self._parts[group] = GroupParts(group_state, listener, blocking_reads)
        return (
            ClaimLoop(group_state, self._commands, self._connections, self._runner),
            listener,
            LeaseRenewal(group_state, self._commands, self._renewal_connection, self._runner),
        )

    async def closed(self, group: ShardGroup) -> bool:
        """Close a removed shard group; False while its leases are not settled."""
        parts = self._parts[group]
        if not parts.group_state.idle:
            return False
        parts.group_state.close()
        del self._parts[group]
        await parts.blocking_reads.close()
        return True

    async def changed(self) -> None:
        """Adopt the current shards."""
        for parts in self._parts.values():
            parts.group_state.exchange_alarm.ring()
            await parts.listener.changed()

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Run until `stop`, then drain; `hurry` ends draining early. LacksResources if no handler can begin."""
        self.services.start()
        try:
            await self._slot_limit.serves_until(stop)
            self.slots.drain()
            fields = {"running": len(self.slots.running), "seconds": self._drain_seconds}
            log.info("drain_started", extra={"fields": fields})
            # Concurrently: an unresponsive Redis must not use up the handlers' drain timeout.
            await asyncio.gather(self._stop_listening(), self._finish_running(hurry))
            await self._flush()
        finally:
            await self.services.end(finish=self._loops_of(ClaimLoop), seconds=FLUSH_SECONDS)
            connections = [*self._connections, self._renewal_connection]
            closing = [each.close() for each in connections]
            closing += [parts.blocking_reads.close() for parts in self._parts.values()]
            await asyncio.gather(*closing)
        self._slot_limit.check()

    def _loops_of(self, kind: type) -> list[Loop]:
        return [loop for loop in self.loops if isinstance(loop.service, kind)]

    async def _stop_listening(self) -> None:
        """Stop the listeners, and forward wake tokens that they may have received."""
        await self.services.drop(*self._loops_of(Listener))
        wakes = [self._commands.wake(keys.shard) for keys in self._commands.shards]
        try:
            await self._renewal_connection.run(wakes)
        except DelayQError as error:
            log.warning("wake_not_forwarded", extra={"fields": {"error": str(error)}})

    async def _finish_running(self, hurry: asyncio.Event) -> None:
        """Let handlers finish within the drain timeout; cancel the others and release their tasks."""
        running, started = self.slots.running, time.monotonic()
        await self._wait_empty(self._drain_seconds, hurry)
        if running:
            log.warning("tasks_handed_back", extra={"fields": {"tasks": len(running)}})
            for each in list(running.values()):
                each.cancel("drain")
            await self._wait_empty(CANCEL_SECONDS, asyncio.Event())
        for each in running.values():
            log.error("cancellation_ignored", extra={"fields": logs.of_task(each.lease.task)})
        log.info("drained", extra={"fields": {"seconds": round(time.monotonic() - started, 3)}})

    async def _wait_empty(self, seconds: float, hurry: asyncio.Event) -> None:
        self.slots.empty.clear()
        self.slots.check_empty()
        waits = {asyncio.create_task(self.slots.empty.wait()), asyncio.create_task(hurry.wait())}
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _flush(self) -> None:
        """Wait until the claim loop has sent every settlement; leases of the others expire and are recovered.

        If `hurry` ended draining, a claim may be under way: its tasks are released here, too.
        """
        slots, deadline = self.slots, time.monotonic() + FLUSH_SECONDS
        while slots.settling and time.monotonic() < deadline:
            slots.ring()
            await asyncio.sleep(0.01)
        if slots.unconfirmed:
            log.error("settle_failed", extra={"fields": {"tasks": slots.unconfirmed}})
