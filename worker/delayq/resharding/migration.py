"""Moving tasks out of one shard: what belongs elsewhere departs, arrives, lands and leaves. See docs/decisions/0026.

Any number may do this for one shard, and any of them may stop for an hour between any two calls. Not here: who does it.
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

NEAR_MS = 60_000  # what is due before stays: longer than a dead migrator and a fail-over together
KEEP_SECONDS = 2.0  # for which a batch stays at both shards: a fail-over may forget a second of the new one
BATCH = 50  # tasks that depart together: less than a millisecond of Redis' time
MOST_UNDER_WAY = 80  # batches that are kept at both
MOST_WAITING = 100_000  # ids that a process remembers, of all its shards; with more, a shard is walked again
PAGE_SECONDS = 0.02  # between calls: about 10,000 tasks a second are looked at
AGAIN_SECONDS = 2.0  # between two looks at those that had to stay
REST_SECONDS = 1.0
FIND_SECONDS = 10.0  # between two looks for batches that another scanner has left unfinished
SETTLED_SECONDS = 30.0  # the same while nothing moves: only a fail-over leaves something behind then
ANY_MS = -(1 << 52)  # near_ms on a queue on hold: nothing that stays would run


class Batch(NamedTuple):
    """One that has arrived."""

    token: int
    shards: frozenset[int]
    since: float  # monotonic seconds


@dataclass
class ScanProgress:
    """How far one shard is with one shard map."""

    epoch: int = 0
    cursor: str | None = "0"  # None: the whole shard was looked at
    run: str = ""  # of the server that gave the cursor
    tasks: int = 0  # there were when the walk began
    checked: int = 0
    moved: int = 0
    waiting: set[bytes] = field(default_factory=set)  # they have to stay, for now
    too_many: bool = False  # to remember
    look_at: list[bytes] = field(default_factory=list)  # what is left of this look at those that had to stay
    done: bool = False


class ShardMigration:
    """Moves what does not belong to one shard, a call a step."""

    def __init__(
        self,
        shard: int,
        commands: Commands,
        connection: AsyncConnection,
        *,
        durability: Durability | None = None,
        near_ms: int = NEAR_MS,
    ) -> None:
        """`durability` is what has to confirm an arrival before the batch is forgotten here."""
        self.shard, self.scan = shard, ScanProgress()
        self._commands, self._connection, self._durability = commands, connection, durability
        self._near_ms = near_ms
        self._sent: deque[Batch] = deque()  # in the order in which they departed
        self._find_at = 0.0  # monotonic seconds: when to look for batches of others
        self._look_again = 0.0  # monotonic seconds
        self.most_waiting = MOST_WAITING  # our part of it

    async def step(self, *, scans: bool = True) -> float:
        """Do one thing; returns the seconds until the next is worth doing. Without `scans`, only end what was begun."""
        by = self._commands.by(self._commands.shard_map)
        if not by.shard_map.epoch:  # a shard that has been dropped since could not refuse what we bring
            return REST_SECONDS
        if self.scan.epoch != by.shard_map.epoch:
            self.scan, self._find_at = ScanProgress(by.shard_map.epoch), 0.0
        try:
            return await self._step(by, scans=scans)
        except BaseException:
            self._find_at = 0.0  # what was asked for may have been done
            raise

    async def _step(self, by: Commands, *, scans: bool) -> float:
        if time.monotonic() >= self._find_at:
            return await self._find(by)
        if self._sent and time.monotonic() - self._sent[0].since >= KEEP_SECONDS:
            return await self._land(by)
        if scans and not self.scan.done and len(self._sent) < MOST_UNDER_WAY:
            return await self._go_on(by)
        return self._until_landing() if self._sent else REST_SECONDS

    @property
    def under_way(self) -> int:
        """Batches that arrived, and are kept here still."""
        return len(self._sent)

    def _until_landing(self) -> float:
        return max(PAGE_SECONDS, self._sent[0].since + KEEP_SECONDS - time.monotonic())

    async def _find(self, by: Commands) -> float:
        """Continue with a batch that was migrated out before, by us or by another scanner."""
        after = self._sent[-1].token if self._sent else 0
        batch = await self._connection.one(by.list_migrating(self.shard, after=after))
        if not batch.token:
            self._find_at = time.monotonic() + (FIND_SECONDS if by.shard_map.moves else SETTLED_SECONDS)
            return 0.0
        if batch.tasks:
            await self._arrive(by, batch)
        else:  # entries that cannot be sent
            await self._connection.one(by.migrate_commit(self.shard, batch.token))
        return PAGE_SECONDS

    async def _go_on(self, by: Commands) -> float:
        scan = self.scan
        if scan.cursor is not None:
            return await self._page(by, scan.cursor)
        if scan.look_at or scan.waiting:
            return await self._look(by, scan)
        if scan.too_many:
            scan.cursor, scan.too_many, scan.checked = "0", False, 0
            return 0.0
        if self._sent:
            return self._until_landing()
        scan.done = await self._connection.one(by.migrate_done(self.shard))
        self._find_at = self._find_at if scan.done else 0.0  # another scanner's batches
        return 0.0

    async def _look(self, by: Commands, scan: ScanProgress) -> float:
        """Look again at those that had to stay."""
        if scan.look_at:
            await self._depart(by, scan.look_at[-BATCH:])
            del scan.look_at[-BATCH:]
            return PAGE_SECONDS
        if time.monotonic() < self._look_again:
            return PAGE_SECONDS * 5
        scan.look_at, scan.waiting = list(scan.waiting), set()
        self._look_again = time.monotonic() + AGAIN_SECONDS
        return 0.0

    async def _page(self, by: Commands, cursor: str) -> float:
        page = await self._connection.one(by.scan(self.shard, cursor))
        if cursor == "0":
            self.scan.run, self.scan.tasks = page.run, page.tasks
        elif page.run != self.scan.run:  # the cursor belonged to another server: start again
            self.scan.cursor, self.scan.checked = "0", 0
            return 0.0
        away = [raw for raw in page.ids if by.shard_of(raw.decode(errors="replace")) != self.shard]
        for at in range(0, len(away), BATCH):
            await self._depart(by, away[at : at + BATCH])
        self.scan.checked += len(page.ids)
        self.scan.cursor = None if page.cursor == "0" else page.cursor
        return PAGE_SECONDS

    async def _depart(self, by: Commands, ids: Sequence[bytes]) -> None:
        while ids:
            batch = await self._connection.one(by.migrate_out(self.shard, ids, near_ms=self._near_ms))
            self._wait_for(batch.stay)
            if batch.tasks:
                self.scan.moved += len(batch.tasks)
                await self._arrive(by, batch)
            ids = batch.later

    def _wait_for(self, ids: Sequence[bytes]) -> None:
        if len(self.scan.waiting) + len(self.scan.look_at) + len(ids) > self.most_waiting:
            self.scan.too_many = True
        else:
            self.scan.waiting.update(ids)

    async def _arrive(self, by: Commands, batch: MigrationBatch) -> None:
        shards = batch.by_shard()
        answers = await self._connection.run(
            [by.migrate_in(to, self.shard, batch.token, tasks) for to, tasks in shards.items()]
        )
        late = {
            to: answer
            for to, answer in zip(shards, answers, strict=True)
            if isinstance(answer, BatchOutOfOrder)
        }
        for to, answer in late.items():
            if await self._connection.one(by.migrate_retoken(self.shard, batch.token, to, answer)):
                self._find_at = 0.0  # under its new token
        if arrived := shards.keys() - late.keys():
            self._sent.append(Batch(batch.token, frozenset(arrived), time.monotonic()))

    async def _land(self, by: Commands) -> float:
        """Forget the oldest batches once their shards have them. Oldest first, by Redis' word: see the decision."""
        now = time.monotonic()
        ripe = [batch for batch in self._sent if now - batch.since >= KEEP_SECONDS]
        await self._confirm(by, frozenset().union(*(batch.shards for batch in ripe)))
        for batch in ripe:
            oldest = await self._connection.one(by.list_migrating(self.shard, whole=False))
            if oldest.token != batch.token:
                return self._again(oldest)
            there = await self._connection.run(
                [by.migrate_verify(to, self.shard, batch.token) for to in oldest.by_shard()]
            )
            if not all(there):
                return self._forget_sent()
            await self._connection.one(by.migrate_commit(self.shard, batch.token))
            self._sent.popleft()
        return 0.0

    def _again(self, oldest: MigrationBatch) -> float:
        """Another scanner was quicker, or began another batch before: read the state again."""
        while self._sent and (not oldest.token or self._sent[0].token < oldest.token):
            self._sent.popleft()
        if oldest.token and (not self._sent or self._sent[0].token > oldest.token):
            return self._forget_sent()
        return 0.0

    def _forget_sent(self) -> float:
        """Begin with the oldest again."""
        self._sent.clear()
        self._find_at = 0.0
        return 0.0

    async def _confirm(self, by: Commands, shards: frozenset[int]) -> None:
        """Wait for what spec.durability asks for, as a schedule does."""
        asked = self._durability
        if asked is None or not shards:
            return
        found = await self._connection.run((), asked.behind(), [by.keys(shard) for shard in shards])
        if min(map(asked.confirmed, found)) < asked.wanted:
            raise DelayQError("tasks that moved to another shard are not confirmed there; they stay at both")
