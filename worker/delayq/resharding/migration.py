"""Moving tasks out of one shard: what belongs elsewhere departs, arrives, lands and leaves. See docs/decisions/0026.

Any number may do this for one shard, and any of them may stop for an hour between any two calls. Not here: who does it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from delayq.errors import DelayQError
from delayq.protocol.results import Late

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Broker
    from delayq.protocol.results import Departed
    from delayq.protocol.write_durability import Acknowledge

NEAR_MS = 60_000  # what is due before stays: longer than a dead mover and a fail-over together
KEEP_SECONDS = 2.0  # for which a batch stays at both shards: a fail-over may forget a second of the new one
BATCH = 50  # tasks that depart together: less than a millisecond of Redis' time
MOST_UNDER_WAY = 80  # batches that are kept at both
MOST_WAITING = 100_000  # ids that a process remembers, of all its shards; with more, a shard is walked again
PAGE_SECONDS = 0.02  # between calls: about 10,000 tasks a second are looked at
AGAIN_SECONDS = 2.0  # between two looks at those that had to stay
REST_SECONDS = 1.0
FIND_SECONDS = 10.0  # between two looks whether somebody has begun what he will not end
SETTLED_SECONDS = 30.0  # the same while nothing moves: only a fail-over leaves something behind then
ANY_MS = -(1 << 52)  # near_ms where nobody would run what stays


class Batch(NamedTuple):
    """One that has arrived."""

    token: int
    shards: frozenset[int]
    since: float  # monotonic seconds


@dataclass
class Walk:
    """How far one shard is with one layout."""

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


class ShardMove:
    """Moves what does not belong to one shard, a call a step."""

    def __init__(
        self,
        shard: int,
        broker: Broker,
        connection: AsyncConnection,
        *,
        acknowledge: Acknowledge | None = None,
        near_ms: int = NEAR_MS,
    ) -> None:
        """`acknowledge` is what has to confirm an arrival before the batch is forgotten here."""
        self.shard, self.walk = shard, Walk()
        self._broker, self._connection, self._acknowledge = broker, connection, acknowledge
        self._near_ms = near_ms
        self._sent: deque[Batch] = deque()  # in the order in which they departed
        self._find_at = 0.0  # monotonic seconds: when to look for batches of others
        self._look_again = 0.0  # monotonic seconds
        self.most_waiting = MOST_WAITING  # our part of it

    async def step(self, *, walks: bool = True) -> float:
        """Do one thing; returns the seconds until the next is worth doing. Without `walks`, only end what was begun."""
        by = self._broker.by(self._broker.layout)
        if not by.layout.epoch:  # a shard that has been dropped since could not refuse what we bring
            return REST_SECONDS
        if self.walk.epoch != by.layout.epoch:
            self.walk, self._find_at = Walk(by.layout.epoch), 0.0
        try:
            return await self._step(by, walks=walks)
        except BaseException:
            self._find_at = 0.0  # what was asked for may have been done
            raise

    async def _step(self, by: Broker, *, walks: bool) -> float:
        if time.monotonic() >= self._find_at:
            return await self._find(by)
        if self._sent and time.monotonic() - self._sent[0].since >= KEEP_SECONDS:
            return await self._land(by)
        if walks and not self.walk.done and len(self._sent) < MOST_UNDER_WAY:
            return await self._go_on(by)
        return self._until_landing() if self._sent else REST_SECONDS

    @property
    def under_way(self) -> int:
        """Batches that arrived, and are kept here still."""
        return len(self._sent)

    def _until_landing(self) -> float:
        return max(PAGE_SECONDS, self._sent[0].since + KEEP_SECONDS - time.monotonic())

    async def _find(self, by: Broker) -> float:
        """Go on with what somebody else, or we, had depart before."""
        after = self._sent[-1].token if self._sent else 0
        batch = await self._connection.one(by.departed(self.shard, after=after))
        if not batch.token:
            self._find_at = time.monotonic() + (FIND_SECONDS if by.layout.moves else SETTLED_SECONDS)
            return 0.0
        if batch.tasks:
            await self._arrive(by, batch)
        else:  # somebody else made it what cannot be sent
            await self._connection.one(by.leave(self.shard, batch.token))
        return PAGE_SECONDS

    async def _go_on(self, by: Broker) -> float:
        walk = self.walk
        if walk.cursor is not None:
            return await self._page(by, walk.cursor)
        if walk.look_at or walk.waiting:
            return await self._look(by, walk)
        if walk.too_many:
            walk.cursor, walk.too_many, walk.checked = "0", False, 0
            return 0.0
        if self._sent:
            return self._until_landing()
        walk.done = await self._connection.one(by.walked(self.shard))
        self._find_at = self._find_at if walk.done else 0.0  # somebody else's batches
        return 0.0

    async def _look(self, by: Broker, walk: Walk) -> float:
        """Look again at those that had to stay."""
        if walk.look_at:
            await self._depart(by, walk.look_at[-BATCH:])
            del walk.look_at[-BATCH:]
            return PAGE_SECONDS
        if time.monotonic() < self._look_again:
            return PAGE_SECONDS * 5
        walk.look_at, walk.waiting = list(walk.waiting), set()
        self._look_again = time.monotonic() + AGAIN_SECONDS
        return 0.0

    async def _page(self, by: Broker, cursor: str) -> float:
        page = await self._connection.one(by.walk(self.shard, cursor))
        if cursor == "0":
            self.walk.run, self.walk.tasks = page.run, page.tasks
        elif page.run != self.walk.run:  # the cursor was another server's: what it passed over, nobody knows
            self.walk.cursor, self.walk.checked = "0", 0
            return 0.0
        away = [raw for raw in page.ids if by.shard_of(raw.decode(errors="replace")) != self.shard]
        for at in range(0, len(away), BATCH):
            await self._depart(by, away[at : at + BATCH])
        self.walk.checked += len(page.ids)
        self.walk.cursor = None if page.cursor == "0" else page.cursor
        return PAGE_SECONDS

    async def _depart(self, by: Broker, ids: Sequence[bytes]) -> None:
        while ids:
            batch = await self._connection.one(by.depart(self.shard, ids, near_ms=self._near_ms))
            self._wait_for(batch.stay)
            if batch.tasks:
                self.walk.moved += len(batch.tasks)
                await self._arrive(by, batch)
            ids = batch.later

    def _wait_for(self, ids: Sequence[bytes]) -> None:
        if len(self.walk.waiting) + len(self.walk.look_at) + len(ids) > self.most_waiting:
            self.walk.too_many = True
        else:
            self.walk.waiting.update(ids)

    async def _arrive(self, by: Broker, batch: Departed) -> None:
        shards = batch.by_shard()
        answers = await self._connection.run(
            [by.arrive(to, self.shard, batch.token, tasks) for to, tasks in shards.items()]
        )
        late = {to: answer for to, answer in zip(shards, answers, strict=True) if isinstance(answer, Late)}
        for to, answer in late.items():
            if await self._connection.one(by.renumber(self.shard, batch.token, to, answer)):
                self._find_at = 0.0  # under its new token
        if arrived := shards.keys() - late.keys():
            self._sent.append(Batch(batch.token, frozenset(arrived), time.monotonic()))

    async def _land(self, by: Broker) -> float:
        """Forget the oldest batches once their shards have them. Oldest first, by Redis' word: see the decision."""
        now = time.monotonic()
        ripe = [batch for batch in self._sent if now - batch.since >= KEEP_SECONDS]
        await self._confirm(by, frozenset().union(*(batch.shards for batch in ripe)))
        for batch in ripe:
            oldest = await self._connection.one(by.departed(self.shard, whole=False))
            if oldest.token != batch.token:
                return self._again(oldest)
            there = await self._connection.run(
                [by.landed(to, self.shard, batch.token) for to in oldest.by_shard()]
            )
            if not all(there):
                return self._forget_sent()
            await self._connection.one(by.leave(self.shard, batch.token))
            self._sent.popleft()
        return 0.0

    def _again(self, oldest: Departed) -> float:
        """Somebody else was quicker, or has begun another batch before: look at what there is."""
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

    async def _confirm(self, by: Broker, shards: frozenset[int]) -> None:
        """Wait for what spec.delivery.acknowledge asks for, as a schedule does."""
        asked = self._acknowledge
        if asked is None or not shards:
            return
        found = await self._connection.run((), asked.behind(), [by.keys(shard) for shard in shards])
        if min(map(asked.confirmed, found)) < asked.wanted:
            raise DelayQError("tasks that moved to another shard are not confirmed there; they stay at both")
