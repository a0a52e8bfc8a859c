"""The reaper: reclaims expired leases without a scanner, repairs indexes, and purges old dead letters.

Any number may run at once, because each action is one atomic script.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from delayq.connection import AsyncConnection
from delayq.errors import DelayQError, UnsupportedFormat
from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH, START
from delayq.protocol.results import LostTask, State
from delayq.protocol.shard_map import ShardMapOutdated
from delayq.protocol.write_durability import durability_of, longest_seconds
from delayq.reaper.guard_retention import SWEEP_SECONDS, GuardRetention, Ledger
from delayq.reaper.size_audit import SizeAudit
from delayq.recovery.reclaim import LIMIT, Grace, clamp_leases, reclaim
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
    from delayq.protocol.results import Counts, Position, TaskRow
    from delayq.protocol.shard_map import ShardMap
    from delayq.recovery.recovery import Recovery
    from delayq.service.loop import Loop, Service

log = logging.getLogger(__name__)

INDEXES = (
    "tasks",
    "delayed",
    "retry",
    "suspect",
    "processing",
    "attempts",
    "dlq",
    "dlq_info",
    "followups",
    "parked",
    "tags",
    "schedules",
    "cancelling",
)
RESTORE_LIMIT = 10  # tasks per call of restore_orphans.lua
# The shortest pause between pages of reconciliation: about 10,000 entries a second.
PAGE_PAUSE_SECONDS = 0.005
PAUSES = 4  # pause as a multiple of a page's duration, so that slow pages use at most a fifth of Redis' time
MOST_PAUSE_SECONDS = 0.5  # the longest pause
POLL_SECONDS = 0.1  # between two checks whether each service has completed a pass


class Sweep:
    """Reclaims expired leases, unless the document names a check, and enforces retention, for one shard group."""

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
        """Sweep every SWEEP_SECONDS; all shards, without a shard group."""
        self._group = ShardGroup(commands) if group is None else group
        self.name = self._group.named("sweep")
        self._commands, self._connection, self._reclaims = commands, connection, reclaims
        self._pause, self._retention = SWEEP_SECONDS, spec.retention
        self._max_crashes, self._lease_ms = (
            spec.delivery.max_crashes,
            spec.delivery.lease_duration_seconds * 1000,
        )
        self._grace, self._refusals = Grace(), PerShard(self.name)
        self.passes = 0
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Sweep once; sweep again at once if a shard had a full batch."""
        acted = await self._refusals.each(self._group.swept, self._sweep)
        if max(acted, default=0) >= LIMIT:
            return 0.0
        if grace := self._reclaims and self._grace.left(self._connection.connects, time.monotonic()):
            return min(grace, float(self._pause))
        self.passes += 1
        return float(self._pause)

    async def _sweep(self, shard: int) -> int:
        if shard not in self._group.shards:  # a dropped shard: no claims, and its dead letters migrate
            return await self._reclaim(shard, time.monotonic())
        await clamp_leases(self._commands, self._connection, shard, lease_ms=self._lease_ms)
        return max(await self._reclaim(shard, time.monotonic()), await self._retain(shard))

    async def _reclaim(self, shard: int, asked_at: float) -> int:
        if not self._reclaims or self._grace.left(self._connection.connects, asked_at):
            return 0
        taken = await reclaim(self._commands, self._connection, shard, max_crashes=self._max_crashes)
        self.done.update(outcome for _, outcome in taken)
        return len(taken)

    async def _retain(self, shard: int) -> int:
        """Purge dead letters, then trim the history, also that of a document that has none any more."""
        pinned = self._commands.pinned_to(self._commands.shard_map)
        oldest = pinned.list(shard, State.DEAD, limit=BATCH)
        letters, counts = await self._connection.run([oldest, pinned.counts(shard)])
        purged = await self._purge(shard, pinned, [*letters.rows.values()], counts)
        if not counts.history_bytes:
            return purged
        trimmed = await self._connection.one(pinned.trim_finished(shard))
        self.done["trimmed"] += trimmed
        return max(purged, trimmed)

    async def _purge(self, shard: int, pinned: Commands, rows: list[TaskRow], counts: Counts) -> int:
        """Purge the oldest dead letters: those past the retention, and those above the shard's limit."""
        before_ms = counts.now_ms - self._retention.dead_letters.seconds * 1000
        too_many = max(0, counts.dead - self._most_letters(pinned.shard_map))
        chosen = [row for nth, row in enumerate(rows) if row.at_ms < before_ms or nth < too_many]
        if not chosen:
            return 0
        # A listed one that was redriven and died again is a new dead letter, with a later time of death.
        fence = min(counts.now_ms, chosen[-1].at_ms + 1)
        try:
            purge = pinned.purge(shard, [row.id for row in chosen], before_ms=fence)
            purged = await self._connection.one(purge)
        except ShardMapOutdated as error:
            self._commands.apply_shard_map(error.shard_map)
            return 0
        log.info("purged", extra={"fields": {"dead_letters": purged, "shard": shard}})
        self.done["purged"] += purged
        return int(purged)

    def _most_letters(self, shard_map: ShardMap) -> int:
        """Return how many dead letters a shard keeps: its part of the limit, rounded up.

        During resharding, or while the shard map is unknown, one shard may hold all of them, so the whole limit counts.
        """
        most = self._retention.dead_letters.count
        return -(-most // shard_map.shards) if shard_map.settled and shard_map.epoch else most


class Reconcile:
    """Reconciles every index of every shard, one page a step, repeatedly.

    A task in no index is leased, or an orphan of a crash of Redis. restore_orphans.lua decides after it has read all
    leases, one call per 500 leases, so it should get few tasks. Before that, the leases are read page by page, twice:
    pages go by rank, and a lease settled meanwhile moves the next ones up, so one pass may skip some. Leases that both
    passes miss cost only additional calls of restore_orphans.lua.
    """

    name, blocks = "reconcile", False

    def __init__(self, commands: Commands, connection: AsyncConnection) -> None:
        """Pause SWEEP_SECONDS between two passes."""
        self._commands, self._connection, self._rest = commands, connection, SWEEP_SECONDS
        self._at = (0, 0)  # shard, and which of INDEXES
        self._whole = True  # so far, this pass has skipped no shard
        self._homeless: set[bytes] = set()  # tasks of this index that are leased or orphans
        self._lost: list[bytes] = []  # those of them without a known lease
        self._refusals = PerShard(self.name)
        self.passes = 0
        self.walks = 0  # passes that skipped no shard
        self.repaired: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Compare one page with all other indexes; after an index' last page, restore orphans, a few a step.

        After an error, this pass skips the shard; the next one includes it again.
        """
        (shard, index), asked_at = self._at, time.monotonic()
        try:
            done = await self._continue(shard, INDEXES[index])
        except UnsupportedFormat as error:
            self._refusals.refuse(shard, error)
            return PAGE_PAUSE_SECONDS if self._skip(shard) else float(self._rest)
        except DelayQError:
            if len(self._commands.shards) > 1:
                self._skip(shard)
            raise
        pause = min(MOST_PAUSE_SECONDS, max(PAGE_PAUSE_SECONDS, PAUSES * (time.monotonic() - asked_at)))
        if not done:
            return pause
        return pause if self._next(shard, index + 1) else float(self._rest)

    async def _continue(self, shard: int, index: str) -> bool:
        """Do the next call for one index of one shard; returns whether the index is done."""
        if self._lost:
            await self._restore(shard)
        elif await self._page(shard, index):
            return False
        elif self._homeless:
            leased = await self._leased(shard)
            self._lost = sorted(raw for raw in self._homeless if raw.decode(errors="replace") not in leased)
            self._homeless = set()
        return not self._lost

    def _skip(self, shard: int) -> bool:
        """Go to the next shard; False when the pass is over."""
        self._homeless, self._lost, self._whole = set(), [], False
        return self._next(shard, len(INDEXES))

    def _next(self, shard: int, index: int) -> bool:
        """Go to the next index, or shard; False when the pass is over."""
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
        """Read the leases; ids that are not UTF-8 have replacement characters, as in every row."""
        leased: set[str] = set()
        after: Position | None = START
        while after:
            page = await self._connection.one(
                self._commands.list(shard, State.IN_FLIGHT, after=after, limit=BATCH, kinds=False)
            )
            leased.update(row.id for row in page.rows.values())
            after = page.after
        return leased

    async def _restore(self, shard: int) -> None:
        left, cursor = [LostTask(raw) for raw in self._lost[:RESTORE_LIMIT]], "0"
        del self._lost[:RESTORE_LIMIT]
        while left:  # the next pass repeats it for tasks that may have been settled meanwhile
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
        """Connect nothing before run(). The reaper runs and closes `recovery`. `once`: end after one pass."""
        self.counters, self._recovery, self._once = (
            ProcessCounters("reaper", commands.queue),
            recovery,
            once,
        )
        if recovery is not None:
            self.counters.lacks = recovery.lacks
        self._spec, self._commands = spec, commands
        self._durability = durability_of(spec.durability)
        self._connection = AsyncConnection(address)
        self._moving = AsyncConnection(address.patient(longest_seconds(self._durability)))
        self.reconcile = Reconcile(commands, self._connection)
        self.services = ServiceManager(self, commands, self.counters, is_cluster=address.is_cluster)
        self.services.add(self.reconcile)
        self.services.add(SizeAudit(commands, self._connection))
        self._shard_map_sync = ShardMapSync(commands, self._connection)
        self.services.add(self._shard_map_sync)
        if ledger is not None:
            self.services.add(GuardRetention(ledger, self.counters))
        self.services.open()

    @property
    def loops(self) -> Sequence[Loop]:
        """The loops that probes check."""
        return self.services.loops

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Return the services of a new shard group."""
        yield Sweep(
            *(self._commands, self._connection, self._spec), reclaims=self._recovery is None, group=group
        )
        yield AbandonedMigrations(group, self._moving, durability=self._durability)
        if self._recovery is not None:
            yield self._recovery.of(group)

    async def closed(self, _group: ShardGroup) -> bool:
        """Nothing to close."""
        return True

    async def changed(self) -> None:
        """Set the shards of recovery: all current and all dropped ones."""
        if self._recovery is not None:
            there = set(range(max(len(self._commands.shards), self._commands.shard_map.widest)))
            for shard in there ^ self._recovery.shards:
                self._recovery.watch(shard, leads=shard in there)

    @property
    def _unfinished(self) -> list[str]:
        """The services that have not completed a pass."""
        services = [loop.service for loop in self.loops]
        return sorted(each.name for each in services if isinstance(each, Sweeping) and not each.passes)

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Run until `stop`, or with `once` until each service has completed a pass."""
        with suppress(DelayQError):  # its loop tries again
            await self._shard_map_sync.step()  # first, because a pass covers all current shards
        self.services.open()
        await self.changed()
        self.services.start()
        try:
            while not stop.is_set() and not (self._once and not self._unfinished):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), POLL_SECONDS if self._once else None)
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
