"""The reaper, the backstop: expired leases that no scanner saw, indexes that disagree, dead letters kept long enough.

Any number may run at once: each act is one atomic script.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from delayq.alarm import Alarm
from delayq.broker import BATCH
from delayq.connection import AsyncConnection
from delayq.loop import Loop, Service
from delayq.prune import Ledger, Prune
from delayq.reclaim import LIMIT, Grace, reclaim
from delayq.tally import ProcessTally
from delayq.values import State

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.recovery import Recovery

log = logging.getLogger(__name__)

INDEXES = ("tasks", "delayed", "retry", "processing", "attempts", "dlq", "dlq_info")
ADOPT_LIMIT = 10  # tasks a call may be asked to adopt
PAGE_PAUSE_SECONDS = (
    0.005  # between pages of reconciliation: about 10,000 entries a second, a tenth of Redis' time
)


class Sweep:
    """Expired leases, unless a check has to be asked about them, and retention, of all shards."""

    name, blocks = "sweep", False

    def __init__(
        self, broker: Broker, connection: AsyncConnection, spec: Spec, *, reclaims: bool = True
    ) -> None:
        """Sweep every spec.reaper.sweepSeconds."""
        self._broker, self._connection, self._reclaims = broker, connection, reclaims
        self._pause, self._retention = spec.reaper.sweep_seconds, spec.retention
        self._max_crashes = spec.delivery.max_crashes
        # Rounded up, as limits are: with more shards than letters to keep, each shard still keeps one.
        self._keep = -(-self._retention.dead_letter_count // len(broker.shards))
        self._grace = Grace()
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Sweep once; go on at once while a shard had more than a batch."""
        acted = 0
        for keys in self._broker.shards:
            asked_at = time.monotonic()
            acted = max(acted, await self._retain(keys.shard), await self._reclaim(keys.shard, asked_at))
        return 0.0 if acted >= LIMIT else float(self._pause)

    async def _reclaim(self, shard: int, asked_at: float) -> int:
        if not self._reclaims or self._grace.left(self._connection.connects, asked_at):
            return 0
        taken = await reclaim(self._broker, self._connection, shard, max_crashes=self._max_crashes)
        self.done.update(outcome for _, outcome in taken)
        return len(taken)

    async def _retain(self, shard: int) -> int:
        """Purge the oldest dead letters: those past their age, and those too many."""
        oldest = self._broker.list(shard, State.DLQ, offset=0, limit=BATCH)
        rows, counts = await self._connection.run([oldest, self._broker.counts(shard)])
        before_ms = counts.now_ms - self._retention.dead_letter_seconds * 1000
        too_many = max(0, counts.dlq - self._keep)
        ids = [row.id for nth, row in enumerate(rows) if row.at_ms < before_ms or nth < too_many]
        if not ids:
            return 0
        purged = await self._connection.one(self._broker.purge(shard, ids))
        log.info("purged", extra={"fields": {"dead_letters": purged, "shard": shard}})
        self.done["purged"] += purged
        return int(purged)


class Reconcile:
    """Walks every index of every shard, a page a step, over and over.

    A task without a home is leased, or lost by a Redis that forgot half of what it was told. adopt.lua tells,
    atomically, but reads all leases for it, some milliseconds with 20,000 of them, so it is asked about few tasks.
    Before, the leases are read page by page, twice: pages go by rank, and a lease settled meanwhile moves the next
    ones up, so one reading may skip some. What both miss costs a call of adopt.lua in vain, and nothing else.
    """

    name, blocks = "reconcile", False

    def __init__(self, broker: Broker, connection: AsyncConnection, spec: Spec) -> None:
        """Rest spec.reaper.sweepSeconds between two walks."""
        self._broker, self._connection, self._rest = broker, connection, spec.reaper.sweep_seconds
        self._walk = [(keys.shard, index) for keys in broker.shards for index in INDEXES]
        self._at = 0
        self._homeless: set[bytes] = set()  # of the walk over this index
        self._lost: list[bytes] = []  # those of them that no reading of the leases has shown
        self.walks = 0
        self.mended: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Hold one page against all other indexes; after the last of an index, adopt the lost, a few a step."""
        shard, index = self._walk[self._at]
        if self._lost:
            await self._adopt(shard)
        elif await self._page(shard, index):
            return PAGE_PAUSE_SECONDS
        elif self._homeless:
            leased = await self._leased(shard)
            self._lost = sorted(raw for raw in self._homeless if raw.decode(errors="replace") not in leased)
            self._homeless = set()
        if self._lost:
            return PAGE_PAUSE_SECONDS
        self._at = (self._at + 1) % len(self._walk)
        self.walks += self._at == 0
        return PAGE_PAUSE_SECONDS if self._at else float(self._rest)

    async def _page(self, shard: int, index: str) -> int:
        page = await self._connection.one(self._broker.reconcile(shard, index))
        self._homeless.update(page.homeless)
        for task_id, outcome in page.tasks:
            self._note(task_id, outcome, shard)
        return page.cursor

    async def _leased(self, shard: int) -> set[str]:
        """Read the leases twice; ids that are not UTF-8 come with replacement characters, as in every row."""
        leased: set[str] = set()
        for _ in range(2):
            offset = 0
            while rows := await self._connection.one(
                self._broker.list(shard, State.PROCESSING, offset=offset, limit=BATCH)
            ):
                leased.update(row.id for row in rows)
                offset += len(rows)
        return leased

    async def _adopt(self, shard: int) -> None:
        adopted = await self._connection.one(self._broker.adopt(shard, self._lost[:ADOPT_LIMIT]))
        del self._lost[:ADOPT_LIMIT]
        for task_id in adopted:
            self._note(task_id.decode(errors="replace"), "adopted", shard)

    def _note(self, task_id: str, outcome: str, shard: int) -> None:
        self.mended[outcome] += 1
        log.warning("mended", extra={"fields": {"task_id": task_id, "outcome": outcome, "shard": shard}})


class Reaper:
    """The services of one reaper process."""

    def __init__(
        self,
        spec: Spec,
        broker: Broker,
        address: Address,
        *,
        recovery: Recovery | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Nothing is connected before run(). `recovery` is ours to run and to close."""
        self.tally, self._recovery = ProcessTally("reaper", broker.queue), recovery
        self._connection = AsyncConnection(address)
        self.sweep = Sweep(broker, self._connection, spec, reclaims=recovery is None)
        self.reconcile = Reconcile(broker, self._connection, spec)
        services: list[Service] = [self.sweep, self.reconcile]
        if recovery is not None:
            services.append(recovery)
        if ledger is not None:
            services.append(Prune(ledger, spec, self.tally))
        self.loops = tuple(Loop(service, self.tally) for service in services)

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
            if self._recovery is not None:
                await self._recovery.close()
                self.sweep.done += self._recovery.done
            await self._connection.close()
            fields = {**self.sweep.done, **self.reconcile.mended, "walks": self.reconcile.walks}
            log.info("reaped", extra={"fields": fields})
