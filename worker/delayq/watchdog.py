"""The watchdog: extends the leases of running tasks at a third of their length, and ends handlers that run too long."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from delayq.alarm import Alarm
from delayq.broker import BATCH

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import AsyncConnection
    from delayq.inflight import Desk, Running

log = logging.getLogger(__name__)


class Watchdog:
    """Looks at every running task of one lane at least once a second."""

    blocks = False

    def __init__(self, desk: Desk, broker: Broker, connection: AsyncConnection) -> None:
        """Watch the running tasks of `desk`."""
        self.name = desk.lane.named("watchdog")
        self._desk, self._broker, self._connection = desk, broker, connection
        self._lease_seconds, self._tally = desk.slots.delivery.lease_seconds, desk.slots.tally
        self.alarm = Alarm()

    async def step(self) -> float:
        """Look at every running task once."""
        now = time.monotonic()
        self._enforce_timeouts(now)
        await self._extend_leases(now)
        return min(1.0, self._lease_seconds / 6)

    def _enforce_timeouts(self, now: float) -> None:
        for (
            running
        ) in self._desk.running.values():  # in the order they began, which is that of their deadlines
            if running.deadline > now:
                break
            if running.cancelled_for is None:
                self._tally.handler_timeouts += 1
                running.cancel("timeout")

    async def _extend_leases(self, now: float) -> None:
        due: dict[int, list[Running]] = {}
        for running in self._desk.running.values():
            # A handler that ignores its cancellation keeps its slot, but not the task. One that cleans up while the
            # worker leaves keeps it until then: nobody is to begin beside it.
            if now - running.extended_at >= self._lease_seconds / 3 and running.cancelled_for in (
                None,
                "drain",
            ):
                due.setdefault(running.lease.shard, []).append(running)
        if not due:
            return
        batches = [
            (shard, held[at : at + BATCH]) for shard, held in due.items() for at in range(0, len(held), BATCH)
        ]
        calls = [
            self._broker.extend(shard, [each.lease.member for each in held], self._lease_seconds * 1000)
            for shard, held in batches
        ]
        for (_, held), lost in zip(batches, await self._connection.run(calls), strict=True):
            self._extended(held, lost, now)

    def _extended(self, held: list[Running], lost: set[int], now: float) -> None:
        self._tally.extended += len(held) - len(lost)
        for at, running in enumerate(held):
            if at not in lost:
                running.extended_at = now
            elif running.lease.member in self._desk.running:
                self._tally.leases_lost += 1
                log.warning(
                    "lease_lost", extra={"fields": {"task_id": running.lease.task.id, "verb": "extend"}}
                )
                running.cancel("lease_lost")
