"""The reaper, the backstop: expired leases that no scanner saw, indexes that disagree, dead letters kept long enough.

Any number may run at once: each act is one atomic script.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from delayq.connection import AsyncConnection
from delayq.errors import DelayQError, FormatTooNew
from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH
from delayq.protocol.results import LostTask, State
from delayq.protocol.shard_map import ShardMapOutdated
from delayq.protocol.write_durability import Durability, longest_seconds
from delayq.reaper.guard_retention import GuardRetention, Ledger
from delayq.reaper.size_audit import SizeAudit
from delayq.recovery.reclaim import LIMIT, Grace, reclaim, rewind
from delayq.resharding import AbandonedMigrations, ShardMapSync
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Sweeping
from delayq.service.per_shard import PerShard
from delayq.service.service_manager import ServiceManager
from delayq.service.shard_groups import ShardGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.protocol.commands import Commands
    from delayq.protocol.shard_map import ShardMap
    from delayq.recovery.recovery import Recovery
    from delayq.service.loop import Loop, Service

log = logging.getLogger(__name__)

INDEXES = ("tasks", "delayed", "retry", "suspect", "processing", "attempts", "dlq", "dlq_info", "followups")
ADOPT_LIMIT = 10  # tasks a call may be asked to adopt
PAGE_PAUSE_SECONDS = 0.005  # between pages of reconciliation, at least: about 10,000 entries a second
PAUSES = 4  # times as long as a page took, so that pages which are slow keep Redis busy for a fifth of its time at most
MOST_PAUSE_SECONDS = 0.5  # whatever held the page up
LOOK_SECONDS = 0.1  # between two looks whether each service has completed a pass


class Sweep:
    """Expired leases, unless a check has to be asked about them, and retention, of the shards of a shard group."""

    blocks = False

    def __init__(
        self,
        commands: Commands,
        connection: AsyncConnection,
        spec: Spec,
        *,
        reclaims: bool = True,
        group: ShardGroup | None = None,
    ) -> None:
        """Sweep every spec.reaper.sweepPeriodSeconds; all shards, without a shard group."""
        self._group = ShardGroup(commands) if group is None else group
        self.name = self._group.named("sweep")
        self._commands, self._connection, self._reclaims = commands, connection, reclaims
        self._pause, self._retention = spec.reaper.sweep_period_seconds, spec.retention
        self._max_crashes, self._lease_ms = (
            spec.delivery.max_crashes,
            spec.delivery.lease_duration_seconds * 1000,
        )
        self._grace, self._apart = Grace(), PerShard(self.name)
        self.passes = 0
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Sweep once; go on at once while a shard had more than a batch."""
        acted = await self._apart.each(self._group.swept, self._sweep)
        if max(acted, default=0) >= LIMIT:
            return 0.0
        if grace := self._reclaims and self._grace.left(self._connection.connects, time.monotonic()):
            return min(grace, float(self._pause))
        self.passes += 1
        return float(self._pause)

    async def _sweep(self, shard: int) -> int:
        if shard not in self._group.shards:  # nothing is claimed there, and what dies there moves
            return await self._reclaim(shard, time.monotonic())
        await rewind(self._commands, self._connection, shard, lease_ms=self._lease_ms)
        asked_at = time.monotonic()
        return max(await self._retain(shard), await self._reclaim(shard, asked_at))

    async def _reclaim(self, shard: int, asked_at: float) -> int:
        if not self._reclaims or self._grace.left(self._connection.connects, asked_at):
            return 0
        taken = await reclaim(self._commands, self._connection, shard, max_crashes=self._max_crashes)
        self.done.update(outcome for _, outcome in taken)
        return len(taken)

    async def _retain(self, shard: int) -> int:
        """Purge the oldest dead letters: those past their age, and those too many by the shard map it knows."""
        by = self._commands.by(self._commands.shard_map)
        oldest = by.list(shard, State.DEAD, offset=0, limit=BATCH)
        rows, counts = await self._connection.run([oldest, by.counts(shard)])
        before_ms = counts.now_ms - self._retention.dead_letter_retention_seconds * 1000
        too_many = max(0, counts.dead - self._most_letters(by.shard_map))
        chosen = [row for nth, row in enumerate(rows) if row.at_ms < before_ms or nth < too_many]
        if not chosen:
            return 0
        # One that was redriven since, and died again, is a new dead letter: it died after all that were listed.
        fence = min(counts.now_ms, chosen[-1].at_ms + 1)
        try:
            purge = by.purge(shard, [row.id for row in chosen], before_ms=fence)
            purged = await self._connection.one(purge)
        except ShardMapOutdated as error:
            self._commands.learn(error.shard_map)
            return 0
        log.info("purged", extra={"fields": {"dead_letters": purged, "shard": shard}})
        self.done["purged"] += purged
        return int(purged)

    def _most_letters(self, shard_map: ShardMap) -> int:
        """Return how many dead letters a shard keeps: its part of them all, once they are known to be spread evenly.

        Until then, during resharding or while the number is unknown, one shard may hold them all.
        Rounded up, as limits are: with more shards than letters to keep, each shard still keeps one.
        """
        most = self._retention.dead_letter_count
        return -(-most // shard_map.shards) if shard_map.settled and shard_map.epoch else most


class Reconcile:
    """Walks every index of every shard, a page a step, over and over.

    A task in no index is leased, or an orphan of a crash of Redis. restore_orphans.lua decides after it has read all
    leases, one call per 500 leases, so it is asked about few tasks. Before that, the leases are read page by page,
    twice: pages go by rank, and a lease settled meanwhile moves the next ones up, so one pass may skip some. What both
    passes miss costs only additional calls of restore_orphans.lua.
    """

    name, blocks = "reconcile", False

    def __init__(self, commands: Commands, connection: AsyncConnection, spec: Spec) -> None:
        """Rest spec.reaper.sweepPeriodSeconds between two walks."""
        self._commands, self._connection, self._rest = commands, connection, spec.reaper.sweep_period_seconds
        self._at = (0, 0)  # shard, and which of INDEXES
        self._whole = True  # so far, no shard was left out of this walk
        self._homeless: set[bytes] = set()  # of the walk over this index
        self._lost: list[bytes] = []  # those of them that no reading of the leases has shown
        self._apart = PerShard(self.name)
        self.passes = 0
        self.walks = 0  # passes that left out no shard
        self.repaired: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Hold one page against all other indexes; after the last of an index, adopt the lost, a few a step.

        A shard that cannot be asked is left out of the walk: the next one comes to it again.
        """
        (shard, index), asked_at = self._at, time.monotonic()
        try:
            done = await self._go_on(shard, INDEXES[index])
        except FormatTooNew as error:
            self._apart.refuse(shard, error)
            return PAGE_PAUSE_SECONDS if self._leave_out(shard) else float(self._rest)
        except DelayQError:
            if len(self._commands.shards) > 1:
                self._leave_out(shard)
            raise
        pause = min(MOST_PAUSE_SECONDS, max(PAGE_PAUSE_SECONDS, PAUSES * (time.monotonic() - asked_at)))
        if not done:
            return pause
        return pause if self._next(shard, index + 1) else float(self._rest)

    async def _go_on(self, shard: int, index: str) -> bool:
        """Do a little more for one index of one shard; whether that was all."""
        if self._lost:
            await self._adopt(shard)
        elif await self._page(shard, index):
            return False
        elif self._homeless:
            leased = await self._leased(shard)
            self._lost = sorted(raw for raw in self._homeless if raw.decode(errors="replace") not in leased)
            self._homeless = set()
        return not self._lost

    def _leave_out(self, shard: int) -> bool:
        """Go to the next shard; False when the walk is over."""
        self._homeless, self._lost, self._whole = set(), [], False
        return self._next(shard, len(INDEXES))

    def _next(self, shard: int, index: int) -> bool:
        """Go to the next index, or shard; False when the walk is over."""
        at = (shard, index) if index < len(INDEXES) else (shard + 1, 0)
        over = at[0] >= len(self._commands.shards)
        self._at = (0, 0) if over else at
        if over:
            self.passes, self.walks, self._whole = self.passes + 1, self.walks + self._whole, True
        return not over

    async def _page(self, shard: int, index: str) -> int:
        page = await self._connection.one(self._commands.reconcile(shard, index))
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
                self._commands.list(shard, State.IN_FLIGHT, offset=offset, limit=BATCH)
            ):
                leased.update(row.id for row in rows)
                offset += len(rows)
        return leased

    async def _adopt(self, shard: int) -> None:
        left, cursor = [LostTask(raw) for raw in self._lost[:ADOPT_LIMIT]], "0"
        del self._lost[:ADOPT_LIMIT]
        while left:  # one that was settled since, or may have been, is met again by the next walk
            found = await self._connection.one(self._commands.restore_orphans(shard, left, cursor))
            left, cursor = found.left, found.cursor
            for task_id in found.ids:
                self._note(task_id.decode(errors="replace"), "adopted", shard)

    def _note(self, task_id: str, outcome: str, shard: int) -> None:
        self.repaired[outcome] += 1
        log.warning(
            "index_repaired", extra={"fields": {"task_id": task_id, "outcome": outcome, "shard": shard}}
        )


class Reaper:
    """The services of one reaper process."""

    def __init__(
        self,
        spec: Spec,
        commands: Commands,
        address: Address,
        *,
        recovery: Recovery | None = None,
        ledger: Ledger | None = None,
        once: bool = False,
    ) -> None:
        """Nothing is connected before run(). `recovery` is ours to run and to close. `once`: end after one pass."""
        self.counters, self._recovery, self._once = (
            ProcessCounters("reaper", commands.queue),
            recovery,
            once,
        )
        self._spec, self._commands = spec, commands
        self._durability = Durability.of(spec.durability)
        self._connection = AsyncConnection(address)
        self._moving = AsyncConnection(address.patient(longest_seconds(self._durability)))
        self.reconcile = Reconcile(commands, self._connection, spec)
        self.services = ServiceManager(self, commands, self.counters, apart=address.apart)
        self.services.add(self.reconcile)
        self.services.add(SizeAudit(commands, self._connection))
        self._shard_map_sync = ShardMapSync(commands, self._connection)
        self.services.add(self._shard_map_sync)
        if ledger is not None:
            self.services.add(GuardRetention(ledger, spec, self.counters))
        self.services.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """What the probes look at."""
        return self.services.loops

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Sweep a shard group."""
        yield Sweep(
            *(self._commands, self._connection, self._spec), reclaims=self._recovery is None, group=group
        )
        yield AbandonedMigrations(group, self._moving, durability=self._durability)
        if self._recovery is not None:
            yield self._recovery.of(group)

    async def closed(self, _group: ShardGroup) -> bool:
        """Nothing is left to do."""
        return True

    async def changed(self) -> None:
        """Recover the tasks of all shards there are, and of those that were dropped."""
        if self._recovery is not None:
            there = set(range(max(len(self._commands.shards), self._commands.shard_map.widest)))
            for shard in there ^ self._recovery.shards:
                self._recovery.watch(shard, leads=shard in there)

    @property
    def _unfinished(self) -> list[str]:
        """What has not completed a pass."""
        services = [loop.service for loop in self.loops]
        return sorted(each.name for each in services if isinstance(each, Sweeping) and not each.passes)

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Sweep and reconcile until `stop`, or until each service has completed a pass if `once` is enough."""
        with suppress(DelayQError):  # else its loop asks again
            await self._shard_map_sync.step()  # first: a pass is over all shards there are
        self.services.open()
        await self.changed()
        self.services.start()
        try:
            while not stop.is_set() and not (self._once and not self._unfinished):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_SECONDS if self._once else None)
        finally:
            services = [loop.service for loop in self.loops]
            unfinished = self._unfinished
            await self.services.end(finish=self.loops, seconds=self._connection.address.timeout_seconds)
            done = [each.done for each in services if isinstance(each, Sweep)]
            if self._recovery is not None:
                await self._recovery.close()
                done.append(self._recovery.done)
            await asyncio.gather(self._connection.close(), self._moving.close())
            fields = {
                **sum(done, Counter[str]()),
                **self.reconcile.repaired,
                "walks": self.reconcile.walks,
                "unfinished": unfinished,
            }
            log.info("reaped", extra={"fields": fields})
