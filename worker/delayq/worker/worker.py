"""The worker: claims due tasks into free slots, runs them, settles them, and stops without killing work.

A task is never held before it is due, so memory is what the slots hold and no more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from delayq.connection import AsyncConnection, Hints
from delayq.errors import DelayQError
from delayq.resharding.shard_map_sync import Follow
from delayq.service.counters import WorkerTally
from delayq.service.service_manager import Roster
from delayq.worker.claim_loop import Exchange
from delayq.worker.executor import Runner
from delayq.worker.guard_breaker import Guarding
from delayq.worker.lease_renewal import Watchdog
from delayq.worker.slots import Desk, Slots
from delayq.worker.wake_listener import Listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.guards import Guard
    from delayq.protocol.commands import Broker
    from delayq.service.loop import Loop, Service
    from delayq.service.shard_groups import Lane
    from delayq.worker.executor import HandlerCall

log = logging.getLogger(__name__)

CANCEL_SECONDS = 10.0  # for handlers to clean up once they are told to stop
FLUSH_SECONDS = 5.0  # for Redis to take what is still to be settled


class Table(NamedTuple):
    """What a worker has for one lane."""

    desk: Desk
    listener: Listener
    hints: Hints


class Worker:
    """One worker process' services."""

    def __init__(
        self,
        spec: Spec,
        broker: Broker,
        address: Address,
        call: HandlerCall,
        *,
        guard: Guard[Any] | None = None,
    ) -> None:
        """Nothing is connected before run(). `call` is the handler's, under the guard if there is one."""
        self.tally = WorkerTally("worker", broker.queue)
        self.slots = Slots(spec, self.tally)
        self._broker, self._address = broker, address
        self._drain_seconds = spec.worker.drain_timeout_seconds
        self.stop_seconds = self._drain_seconds + CANCEL_SECONDS + 2 * FLUSH_SECONDS
        # The watchdog has a connection of its own: a large claim must not hold up a lease's extension.
        self._connection, self._watch_connection = AsyncConnection(address), AsyncConnection(address)
        self._tables: dict[Lane, Table] = {}
        guarding = None if guard is None else Guarding(guard, self.slots)
        if guarding is not None:
            call = guarding.around(call)
        self._runner = Runner(call, spec.delivery, self.tally)
        self.roster = Roster(self, broker, self.tally, apart=address.apart)
        if guarding is not None:
            self.roster.add(guarding)
        self.roster.add(Follow(broker, self._watch_connection))
        self.roster.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""
        return self.roster.loops

    def opened(self, lane: Lane) -> Iterable[Service]:
        """Claim from a lane, and settle there."""
        desk, hints = Desk(self.slots, lane), Hints(self._address)
        listener = Listener(desk, self._broker, hints)
        self._tables[lane] = Table(desk, listener, hints)
        return (
            Exchange(desk, self._broker, self._connection, self._runner),
            listener,
            Watchdog(desk, self._broker, self._watch_connection, self._runner),
        )

    async def closed(self, lane: Lane) -> bool:
        """Leave a lane once what we hold of it is settled."""
        table = self._tables[lane]
        if not table.desk.idle:
            return False
        table.desk.close()
        del self._tables[lane]
        await table.hints.close()
        return True

    async def changed(self) -> None:
        """Listen for the shards there are now."""
        for table in self._tables.values():
            table.desk.exchange_alarm.ring()
            await table.listener.changed()

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:
        """Work until `stop`, then drain; `hurry` ends the draining early."""
        self.roster.start()
        try:
            await stop.wait()
            self.slots.draining = True
            fields = {"running": len(self.slots.running), "seconds": self._drain_seconds}
            log.info("draining", extra={"fields": fields})
            # At the same time: a Redis that does not answer must not use up the time that handlers are given.
            await asyncio.gather(self._stop_listening(), self._finish_running(hurry))
            await self._flush()
        finally:
            await self.roster.end(finish=self._loops_of(Exchange), seconds=FLUSH_SECONDS)
            hints = (table.hints.close() for table in self._tables.values())
            await asyncio.gather(self._connection.close(), self._watch_connection.close(), *hints)

    def _loops_of(self, kind: type) -> list[Loop]:
        return [loop for loop in self.loops if isinstance(loop.service, kind)]

    async def _stop_listening(self) -> None:
        """Stop blocking on hints, and pass on those that may have been on their way to us."""
        await self.roster.drop(*self._loops_of(Listener))
        wakes = [self._broker.wake(keys.shard) for keys in self._broker.shards]
        try:
            await self._watch_connection.run(wakes)
        except DelayQError as error:
            log.warning("wake_not_passed_on", extra={"fields": {"error": str(error)}})

    async def _finish_running(self, hurry: asyncio.Event) -> None:
        """Let handlers finish within the drain timeout; hand back the tasks of those that do not."""
        running, started = self.slots.running, time.monotonic()
        await self._wait_empty(self._drain_seconds, hurry)
        if running:
            log.warning("handing_back", extra={"fields": {"tasks": len(running)}})
            for each in list(running.values()):
                each.cancel("drain")
            await self._wait_empty(CANCEL_SECONDS, asyncio.Event())
        for each in running.values():
            log.error("handler_ignores_cancellation", extra={"fields": {"task_id": each.lease.task.id}})
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
            log.error("not_settled", extra={"fields": {"tasks": slots.unconfirmed}})
