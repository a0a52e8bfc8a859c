"""The reaper, the backstop: expired leases that no scanner saw, indexes that disagree, dead letters kept long enough.

Any number may run at once: each act is one atomic script.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from delayq.alarm import Alarm
from delayq.broker import BATCH
from delayq.connection import AsyncConnection
from delayq.loop import Loop
from delayq.tally import ProcessTally
from delayq.values import State

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import Address
    from delayq.contract import Spec

log = logging.getLogger(__name__)

INDEXES = ("tasks", "delayed", "retry", "processing", "attempts", "dlq", "dlq_info")
RECLAIM_LIMIT = 100
PAGE_PAUSE_SECONDS = (
    0.005  # between pages of reconciliation: about 10,000 entries a second, a tenth of Redis' time
)


class Sweep:
    """Expired leases and retention, of all shards."""

    name, blocks = "sweep", False

    def __init__(self, broker: Broker, connection: AsyncConnection, spec: Spec) -> None:
        """Sweep every spec.reaper.sweepSeconds."""
        self._broker, self._connection = broker, connection
        self._pause, self._retention = spec.reaper.sweep_seconds, spec.retention
        self._max_crashes = spec.delivery.max_crashes
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Sweep once; go on at once while a shard had more than a batch."""
        acted = 0
        for keys in self._broker.shards:
            acted = max(acted, await self._reclaim(keys.shard), await self._retain(keys.shard))
        return 0.0 if acted >= RECLAIM_LIMIT else float(self._pause)

    async def _reclaim(self, shard: int) -> int:
        call = self._broker.reclaim(shard, max_crashes=self._max_crashes, limit=RECLAIM_LIMIT)
        taken = await self._connection.one(call)
        for member, outcome in taken:
            log.warning("reclaimed", extra={"fields": {"lease": member, "outcome": outcome}})
        self.done.update(outcome for _, outcome in taken)
        return len(taken)

    async def _retain(self, shard: int) -> int:
        """Purge the oldest dead letters: those past their age, and those too many."""
        oldest = self._broker.list(shard, State.DLQ, offset=0, limit=BATCH)
        rows, counts = await self._connection.run([oldest, self._broker.counts(shard)])
        before_ms = counts.now_ms - self._retention.dead_letter_seconds * 1000
        too_many = max(0, counts.dlq - self._retention.dead_letter_count // len(self._broker.shards))
        ids = [row.id for nth, row in enumerate(rows) if row.at_ms < before_ms or nth < too_many]
        if not ids:
            return 0
        purged = await self._connection.one(self._broker.purge(shard, ids))
        log.info("purged", extra={"fields": {"dead_letters": purged, "shard": shard}})
        self.done["purged"] += purged
        return int(purged)


class Reconcile:
    """Walks every index of every shard, a page a step, over and over.

    A task without a home is leased, or lost by a Redis that forgot half of what it was told. To tell, the leases have
    to be read after the tasks were, and a task that is in neither is looked at once more, atomically, before it is
    adopted: reading all leases in one script for every page would hold Redis for too long.
    """

    name, blocks = "reconcile", False

    def __init__(self, broker: Broker, connection: AsyncConnection, spec: Spec) -> None:
        """Rest spec.reaper.sweepSeconds between two walks."""
        self._broker, self._connection, self._rest = broker, connection, spec.reaper.sweep_seconds
        self._walk = [(keys.shard, index) for keys in broker.shards for index in INDEXES]
        self._at = 0
        self._homeless: set[bytes] = set()
        self.walks = 0
        self.mended: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Hold one page against all other indexes."""
        shard, index = self._walk[self._at]
        page = await self._connection.one(self._broker.reconcile(shard, index))
        self._homeless.update(page.homeless)
        for task_id, outcome in page.tasks:
            self._note(task_id, outcome, shard)
        if page.cursor:
            return PAGE_PAUSE_SECONDS
        if self._homeless:
            await self._adopt(shard)
        self._at = (self._at + 1) % len(self._walk)
        self.walks += self._at == 0
        return PAGE_PAUSE_SECONDS if self._at else float(self._rest)

    async def _adopt(self, shard: int) -> None:
        suspects, self._homeless = self._homeless, set()
        leased = 0
        while page := await self._connection.one(
            self._broker.list(shard, State.PROCESSING, offset=leased, limit=BATCH)
        ):
            suspects.difference_update(row.id.encode(errors="surrogateescape") for row in page)
            leased += len(page)
        left = sorted(suspects)
        for at in range(0, len(left), BATCH):
            for task_id in await self._connection.one(self._broker.adopt(shard, left[at : at + BATCH])):
                self._note(task_id.decode(errors="replace"), "adopted", shard)

    def _note(self, task_id: str, outcome: str, shard: int) -> None:
        self.mended[outcome] += 1
        log.warning("mended", extra={"fields": {"task_id": task_id, "outcome": outcome, "shard": shard}})


class Reaper:
    """The services of one reaper process."""

    def __init__(self, spec: Spec, broker: Broker, address: Address) -> None:
        """Nothing is connected before run()."""
        self.tally = ProcessTally("reaper", broker.queue)
        self._connection = AsyncConnection(address)
        self.sweep = Sweep(broker, self._connection, spec)
        self.reconcile = Reconcile(broker, self._connection, spec)
        self.loops = tuple(Loop(service, self.tally) for service in (self.sweep, self.reconcile))

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Sweep and reconcile until `stop`."""
        tasks = [asyncio.create_task(loop.run()) for loop in self.loops]
        try:
            await stop.wait()
        finally:
            for loop in self.loops:
                loop.stop()
            await asyncio.wait(tasks, timeout=self._connection.address.timeout_seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._connection.close()
            fields = {**self.sweep.done, **self.reconcile.mended, "walks": self.reconcile.walks}
            log.info("reaped", extra={"fields": fields})
