"""Migrate tasks out of one shard, in batches: out, in, verify, commit. See docs/contributing/decisions/0026.

Several processes may migrate one shard at once, and each may pause between any two calls. Not here: which process does.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from delayq.errors import DelayQError
from delayq.protocol.results import BatchOutOfOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import MigrationBatch
    from delayq.protocol.write_durability import Durability

# Tasks due sooner stay: longer than the recovery from a dead migrator and a fail-over together.
NEAR_MS = 60_000
# For how long both shards keep a batch: a fail-over may lose a second of the target's writes.
KEEP_SECONDS = 2.0
BATCH = 50  # tasks per batch: less than a millisecond of Redis' time
MOST_UNDER_WAY = 80  # batches that both shards keep
MOST_WAITING = 100_000  # ids in a process' memory, for all its shards; with more, a shard is scanned again
PAGE_SECONDS = 0.02  # between calls: about 10,000 tasks a second
AGAIN_SECONDS = 2.0  # between two tries of tasks that had to stay
REST_SECONDS = 1.0
FIND_SECONDS = 10.0  # between two searches for unfinished batches of other scanners
SETTLED_SECONDS = 30.0  # the same while no task migrates: only a fail-over leaves a batch then
ANY_MS = -(1 << 52)  # near_ms of a queue on hold: also due tasks migrate, because none would run


class Batch(NamedTuple):
    """A batch that has arrived."""

    token: int
    shards: frozenset[int]
    since: float  # monotonic seconds


@dataclass
class ScanProgress:
    """The progress of one shard under one shard map."""

    epoch: int = 0
    cursor: str | None = "0"  # None: the scan is complete
    run: str = ""  # ID of the server's run, for which the cursor is valid
    tasks: int = 0  # at the start of the scan
    checked: int = 0
    moved: int = 0
    waiting: set[bytes] = field(default_factory=set)  # tasks that have to stay for now
    too_many: bool = False  # more waiting tasks than fit in memory: scan again
    look_at: list[bytes] = field(default_factory=list)  # waiting tasks to try again now
    done: bool = False


class ShardMigration:
    """Migrates the tasks of one shard that have another home, one call per step."""

    def __init__(
        self,
        shard: int,
        commands: Commands,
        connection: AsyncConnection,
        *,
        durability: Durability | None = None,
        near_ms: int = NEAR_MS,
    ) -> None:
        """`durability` must confirm a batch at its target before the source deletes it."""
        self.shard, self.scan = shard, ScanProgress()
        self._commands, self._connection, self._durability = commands, connection, durability
        self._near_ms = near_ms
        self._sent: deque[Batch] = deque()  # in the order of their tokens
        self._find_at = 0.0  # monotonic seconds: the next search for unfinished batches
        self._look_again = 0.0  # monotonic seconds: the next try of waiting tasks
        self.most_waiting = MOST_WAITING  # this shard's part of it

    async def step(self, *, scans: bool = True) -> float:
        """Do one call; returns the seconds until the next. Without `scans`, only complete unfinished batches."""
        pinned = self._commands.pinned_to(self._commands.shard_map)
        if not pinned.shard_map.epoch:  # without an epoch, a dropped shard could not reject a batch
            return REST_SECONDS
        if self.scan.epoch != pinned.shard_map.epoch:
            self.scan, self._find_at = ScanProgress(pinned.shard_map.epoch), 0.0
        try:
            return await self._step(pinned, scans=scans)
        except BaseException:
            self._find_at = 0.0  # Redis may have executed the call
            raise

    async def _step(self, pinned: Commands, *, scans: bool) -> float:
        if time.monotonic() >= self._find_at:
            return await self._find(pinned)
        if self._sent and time.monotonic() - self._sent[0].since >= KEEP_SECONDS:
            return await self._land(pinned)
        if scans and not self.scan.done and len(self._sent) < MOST_UNDER_WAY:
            return await self._go_on(pinned)
        return self._until_landing() if self._sent else REST_SECONDS

    @property
    def under_way(self) -> int:
        """Batches that have arrived and that the source still keeps."""
        return len(self._sent)

    def _until_landing(self) -> float:
        return max(PAGE_SECONDS, self._sent[0].since + KEEP_SECONDS - time.monotonic())

    async def _find(self, pinned: Commands) -> float:
        """Continue with a batch that was migrated out before, by us or by another scanner."""
        after = self._sent[-1].token if self._sent else 0
        batch = await self._connection.one(pinned.list_migrating(self.shard, after=after))
        if not batch.token:
            self._find_at = time.monotonic() + (FIND_SECONDS if pinned.shard_map.moves else SETTLED_SECONDS)
            return 0.0
        if batch.tasks:
            await self._arrive(pinned, batch)
        else:  # entries that cannot be sent
            await self._connection.one(pinned.migrate_commit(self.shard, batch.token))
        return PAGE_SECONDS

    async def _go_on(self, pinned: Commands) -> float:
        scan = self.scan
        if scan.cursor is not None:
            return await self._page(pinned, scan.cursor)
        if scan.look_at or scan.waiting:
            return await self._look(pinned, scan)
        if scan.too_many:
            scan.cursor, scan.too_many, scan.checked = "0", False, 0
            return 0.0
        if self._sent:
            return self._until_landing()
        scan.done = await self._connection.one(pinned.migrate_done(self.shard))
        self._find_at = self._find_at if scan.done else 0.0  # another scanner's batches
        return 0.0

    async def _look(self, pinned: Commands, scan: ScanProgress) -> float:
        """Try again to migrate tasks that had to stay."""
        if scan.look_at:
            await self._depart(pinned, scan.look_at[-BATCH:])
            del scan.look_at[-BATCH:]
            return PAGE_SECONDS
        if time.monotonic() < self._look_again:
            return PAGE_SECONDS * 5
        scan.look_at, scan.waiting = list(scan.waiting), set()
        self._look_again = time.monotonic() + AGAIN_SECONDS
        return 0.0

    async def _page(self, pinned: Commands, cursor: str) -> float:
        page = await self._connection.one(pinned.scan(self.shard, cursor))
        if cursor == "0":
            self.scan.run, self.scan.tasks = page.run, page.tasks
        elif page.run != self.scan.run:  # the cursor belonged to another server: start again
            self.scan.cursor, self.scan.checked = "0", 0
            return 0.0
        away = [raw for raw in page.ids if pinned.shard_of(raw.decode(errors="replace")) != self.shard]
        for at in range(0, len(away), BATCH):
            await self._depart(pinned, away[at : at + BATCH])
        self.scan.checked += len(page.ids)
        self.scan.cursor = None if page.cursor == "0" else page.cursor
        return PAGE_SECONDS

    async def _depart(self, pinned: Commands, ids: Sequence[bytes]) -> None:
        while ids:
            batch = await self._connection.one(pinned.migrate_out(self.shard, ids, near_ms=self._near_ms))
            self._wait_for(batch.stay)
            if batch.tasks:
                self.scan.moved += len(batch.tasks)
                await self._arrive(pinned, batch)
            ids = batch.later

    def _wait_for(self, ids: Sequence[bytes]) -> None:
        if len(self.scan.waiting) + len(self.scan.look_at) + len(ids) > self.most_waiting:
            self.scan.too_many = True
        else:
            self.scan.waiting.update(ids)

    async def _arrive(self, pinned: Commands, batch: MigrationBatch) -> None:
        shards = batch.by_shard()
        answers = await self._connection.run(
            [pinned.migrate_in(to, self.shard, batch.token, tasks) for to, tasks in shards.items()]
        )
        late = {
            to: answer
            for to, answer in zip(shards, answers, strict=True)
            if isinstance(answer, BatchOutOfOrder)
        }
        for to, answer in late.items():
            if await self._connection.one(pinned.migrate_retoken(self.shard, batch.token, to, answer)):
                self._find_at = 0.0  # under its new token
        if arrived := shards.keys() - late.keys():
            self._sent.append(Batch(batch.token, frozenset(arrived), time.monotonic()))

    async def _land(self, pinned: Commands) -> float:
        """Verify and commit batches after KEEP_SECONDS, the oldest in Redis first: see the decision."""
        now = time.monotonic()
        ripe = [batch for batch in self._sent if now - batch.since >= KEEP_SECONDS]
        await self._confirm(pinned, frozenset().union(*(batch.shards for batch in ripe)))
        for batch in ripe:
            oldest = await self._connection.one(pinned.list_migrating(self.shard, whole=False))
            if oldest.token != batch.token:
                return self._again(oldest)
            there = await self._connection.run(
                [pinned.migrate_verify(to, self.shard, batch.token) for to in oldest.by_shard()]
            )
            if not all(there):
                return self._forget_sent()
            await self._connection.one(pinned.migrate_commit(self.shard, batch.token))
            self._sent.popleft()
        return 0.0

    def _again(self, oldest: MigrationBatch) -> float:
        """Adapt to another scanner, which has committed our batch or started an older one."""
        while self._sent and (not oldest.token or self._sent[0].token < oldest.token):
            self._sent.popleft()
        if oldest.token and (not self._sent or self._sent[0].token > oldest.token):
            return self._forget_sent()
        return 0.0

    def _forget_sent(self) -> float:
        """Start again with the oldest batch in Redis."""
        self._sent.clear()
        self._find_at = 0.0
        return 0.0

    async def _confirm(self, pinned: Commands, shards: frozenset[int]) -> None:
        """Wait for the confirmation that spec.durability requires, as schedule does."""
        asked = self._durability
        if asked is None or not shards:
            return
        found = await self._connection.run(
            (), asked.confirm_commands(), [pinned.keys(shard) for shard in shards]
        )
        if min(map(asked.confirmed, found)) < asked.wanted:
            raise DelayQError("migrated tasks are not confirmed at their new shard; both shards keep them")
