"""The layout's next step: every scanner may ask for one, as its document does, and the leader of shard 0 takes it.

Not here: moving tasks (migrator.py). docs/decisions/0026 says why two of these do no harm.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delayq.errors import DelayQError
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import UNSTAMPED, Layout
from delayq.resharding.migration import ANY_MS, ShardMove
from delayq.resharding.migrator import stepped
from delayq.resharding.shard_map_sync import SETTLED_SECONDS
from delayq.service.per_shard import Apart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from delayq.connection import AsyncConnection
    from delayq.contract import DelayQueue
    from delayq.protocol.commands import Broker
    from delayq.protocol.results import Told
    from delayq.protocol.write_durability import Acknowledge

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks while tasks move, or are about to; else as others follow
TELL_SECONDS = 10.0  # between two times that a settled layout is told to every shard
ANNOUNCE_SECONDS = 2 * SETTLED_SECONDS + 1  # at least, and surely all who live have looked


@dataclass
class Wish:
    """What a document wants, and whether it may ask for it: pods of an older document must not ask back."""

    shards: int
    stamp: str  # uid:generation, or UNSTAMPED
    found: str = field(default="", init=False)  # who had asked last when this process began
    asked: bool = field(default=False, init=False)

    @classmethod
    def of(cls, queue: DelayQueue) -> Wish:
        """Read it from a document."""
        uid, generation = queue.metadata.uid, queue.metadata.generation
        stamp = UNSTAMPED if uid is None or generation is None else f"{uid}:{generation}"
        return cls(queue.spec.shards, stamp)

    def next(self, layout: Layout) -> Layout | None:
        """Return the layout to propose; None while there is nothing to ask for, or no right to, or tasks move."""
        self.found = self.found or layout.asked
        if not self._may(layout):
            return None
        if self.shards == layout.target:
            self.asked = True
            return None
        return layout.towards(self.shards, self.stamp)

    def _may(self, layout: Layout) -> bool:
        if self.stamp == UNSTAMPED:
            return not self.asked and layout.asked == UNSTAMPED
        if layout.asked == UNSTAMPED:
            return True
        uid, _, generation = self.stamp.rpartition(":")
        other, _, last = layout.asked.rpartition(":")
        if uid == other:
            return int(generation) > int(last)
        return layout.asked == self.found  # of another DelayQueue of this name, which was there before us

    def refused(self, layout: Layout) -> str:
        """Return why it wants another number and may not ask, or nothing; pods of an older document know why."""
        self.found = self.found or layout.asked
        if self.shards == layout.target or self._may(layout):
            return ""
        uid, other = self.stamp.rpartition(":")[0], layout.asked.rpartition(":")[0]
        if self.stamp != UNSTAMPED:
            return "" if uid == other else f"another DelayQueue, of uid {other}, asked later"
        if layout.asked == UNSTAMPED:
            return "another document without metadata.uid asked later; start a scanner to ask again"
        return f"it was asked by a DelayQueue in Kubernetes ({layout.asked}); a document without metadata.uid may not"


class Reshard:
    """Asks for the layout that the document wants, and takes the steps to it while we lead shard 0."""

    name, blocks = "reshard", True

    def __init__(
        self,
        broker: Broker,
        connection: AsyncConnection,
        *,
        wish: Wish,
        acknowledge: Acknowledge | None = None,
        led: Callable[[], Collection[int]],
        announce_seconds: float,
    ) -> None:
        """`acknowledge` is what has to confirm tasks that move.

        `announce_seconds` is how long everybody may take to look after shards that are new.
        """
        self._broker, self._connection, self._wish, self._led = broker, connection, wish, led
        self._acknowledge, self._announce_seconds = acknowledge, announce_seconds
        self._epoch, self._since = -1, 0.0  # that we saw last, and since when; monotonic seconds
        self._tell_at = 0.0
        self._strays: dict[int, ShardMove] = {}  # shards that are no more, and hold tasks
        self._refused = ""  # what we said of it last
        self._refusals = Apart(self.name)
        self.alarm = Alarm()

    async def step(self) -> float:
        """Learn the layout, ask for another, take a step."""
        known = self._broker.layout if self._broker.layout.epoch else None
        if not known and self._wish.shards > 1:
            await self._check_placed()
        first = Layout.first(self._wish.shards, self._wish.stamp)
        told = await self._connection.one(self._broker.tell(0, known or first, proposed=not known))
        self._follow(told)
        wished = self._wish.next(self._broker.layout)
        if wished is not None:
            await self._propose(wished)
        self._note_refusal(self._broker.layout)
        if 0 not in self._led() or told.erased:
            self._epoch = -1
            return SETTLED_SECONDS if self._broker.layout.settled else LOOK_SECONDS
        return await self._lead(self._broker.layout)

    async def _check_placed(self) -> None:
        """Say so when tasks are there and no layout: who stored them may have placed them otherwise than we do."""
        told = await self._connection.one(self._broker.tell(0))
        if told.layout is None and told.tasks:
            fields = {"queue": self._broker.queue, "tasks": told.tasks, "shards": self._wish.shards}
            log.warning("unplaced", extra={"fields": fields})

    def _note_refusal(self, layout: Layout) -> None:
        before, self._refused = self._refused, self._wish.refused(layout)
        if self._refused and self._refused != before:
            fields = {"asked": self._wish.shards, "stays": layout.target, "because": self._refused}
            log.warning("shards_refused", extra={"fields": {"queue": self._broker.queue, **fields}})

    def _follow(self, told: Told) -> bool:
        return told.layout is not None and self._broker.learn(told.layout)

    async def _propose(self, layout: Layout) -> None:
        """Have shard 0 decide; before, make sure that no other shard knows more than it does."""
        if not await self._tell_all(self._broker.layout):
            return
        self._follow(await self._connection.one(self._broker.tell(0, layout, proposed=True)))
        decided = self._broker.layout
        self._wish.asked |= replace(decided, epoch=layout.epoch) == layout

    async def _tell_all(self, layout: Layout, first: int = 0) -> list[Told] | None:
        """Tell every shard there ever was; None when one knows more, or cannot be reached."""
        by, shards = self._broker.by(layout), range(first, layout.widest)
        answers = await self._connection.answers(
            [by.tell(shard, layout) if shard < layout.covers else by.drop(shard) for shard in shards]
        )
        found = [answer for answer in answers if not isinstance(answer, DelayQError)]
        news = [self._follow(told) for told in found]
        return None if any(news) or len(found) < len(answers) else found

    async def _lead(self, layout: Layout) -> float:
        now = time.monotonic()
        if layout.epoch != self._epoch:
            self._epoch, self._since, self._tell_at = layout.epoch, now, 0.0
        if layout.settled:
            return await self._keep(layout, now)
        found = await self._tell_all(layout)
        if found is None or await self._revived(layout, found):
            return LOOK_SECONDS
        if layout.moves:
            ready = all(told.home_epoch == layout.epoch for told in found[: layout.covers])
        else:
            ready = now - self._since >= self._announce_seconds
        following = layout.follows()
        if ready and following is not None:
            self._follow(await self._connection.one(self._broker.tell(0, following, proposed=True)))
            return 0.0
        return LOOK_SECONDS / 2

    async def _keep(self, layout: Layout, now: float) -> float:
        """Tell dropped shards what holds now and then; should one have got a task all the same, have it moved."""
        if now >= self._tell_at:
            found = await self._tell_all(layout, first=1) or []  # shard 0 was told just now
            self._tell_at = now + TELL_SECONDS
            if await self._revived(layout, found[: layout.covers - 1]):
                return 0.0
            for shard, told in enumerate(found[layout.covers - 1 :], layout.covers):
                if told.tasks and shard not in self._strays:
                    log.warning("strays", extra={"fields": {"shard": shard, "tasks": told.tasks}})
                    self._strays[shard] = ShardMove(
                        *(shard, self._broker, self._connection),
                        acknowledge=self._acknowledge,
                        near_ms=ANY_MS,
                    )
        pause = SETTLED_SECONDS
        for shard, move in list(self._strays.items()):
            pause = min(pause, await stepped(move, self._broker, walks=True, refusals=self._refusals))
            if move.walk.done and not move.under_way:
                del self._strays[shard]
        return pause

    async def _revived(self, layout: Layout, found: Sequence[Told]) -> bool:
        """Date the layout anew where a shard was erased and others were not: else it would refuse this one for ever."""
        erased = max((told.erased for told in found), default=0)
        if erased:
            log.warning("erased_in_part", extra={"fields": {"queue": self._broker.queue}})
            later = replace(layout, epoch=erased + 1)
            self._follow(await self._connection.one(self._broker.tell(0, later, proposed=True)))
        return erased > 0
