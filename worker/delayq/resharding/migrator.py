"""Services of a change of shards: Mover for the tasks, Stranded for what a mover left behind.

docs/decisions/0026 says what each may do.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from delayq.errors import FormatTooNew
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import LayoutOutdated
from delayq.resharding.migration import MOST_WAITING, NEAR_MS, PAGE_SECONDS, REST_SECONDS, ShardMove
from delayq.service.per_shard import Apart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Broker
    from delayq.protocol.write_durability import Acknowledge
    from delayq.resharding.migration import Walk
    from delayq.service.shard_groups import Lane

log = logging.getLogger(__name__)

STRANDED_SECONDS = 5.0  # as long as a batch on its way may have no mover, before others see to it
SETTLED_SECONDS = 10.0  # between looks while nothing moves: only a fail-over leaves a batch behind then


class Mover:
    """Moves the tasks of the shards of a lane that this scanner leads."""

    blocks = True  # a shard that tasks go to may be away

    def __init__(
        self,
        lane: Lane,
        connection: AsyncConnection,
        *,
        led: Callable[[], Collection[int]],
        acknowledge: Acknowledge | None = None,
        near_ms: int = NEAR_MS,
    ) -> None:
        """`led` are the shards that we lead, of whatever lane; `connection` carries what nobody waits for."""
        self.name, self._lane, self._broker, self._led = lane.named("move"), lane, lane.broker, led
        self._connection, self._acknowledge, self._near_ms = connection, acknowledge, near_ms
        self._moves: dict[int, ShardMove] = {}
        self._due: dict[int, float] = {}  # shard → monotonic seconds
        self._failed = set[int]()  # shards whose last try did
        self._refusals = Apart(self.name)
        self.alarm = Alarm()

    @property
    def walks(self) -> Mapping[int, Walk]:
        """How far each shard that we lead is; nothing while none moves."""
        if not self._broker.layout.moves:
            return {}
        return {shard: move.walk for shard, move in self._moves.items() if move.walk.tasks or move.walk.done}

    async def step(self) -> float:
        """Do one thing for the shard that has waited longest for it."""
        led = set(self._led()) & set(self._lane.shards)
        for shard in self._moves.keys() - led:
            del self._moves[shard], self._due[shard]
            self._failed.discard(shard)
        for shard in led - self._moves.keys():
            self._moves[shard] = ShardMove(
                *(shard, self._broker, self._connection),
                acknowledge=self._acknowledge,
                near_ms=self._near_ms,
            )
            self._due[shard] = 0.0
        if not self._due:
            return REST_SECONDS / 2
        shard = min(self._due, key=lambda shard: (self._due[shard], shard))
        now = time.monotonic()
        if self._due[shard] > now:
            if shard not in self._failed:
                return self._pause(now)
            # To rest after a failure is no success: an outage would be told as over, and as a new one, each second.
            await self.alarm.wait(self._due[shard] - now)
        return await self._tried(shard)

    async def _tried(self, shard: int) -> float:
        self._due[shard] = time.monotonic() + REST_SECONDS  # should it fail, others are not to wait for it
        self._failed.add(shard)
        self._moves[shard].most_waiting = MOST_WAITING // max(1, len(self._led()))
        walks = self._broker.layout.moves
        pause = await stepped(self._moves[shard], self._broker, walks=walks, refusals=self._refusals)
        self._failed.discard(shard)
        self._due[shard] = time.monotonic() + pause
        return PAGE_SECONDS if pause else 0.0

    def _pause(self, now: float) -> float:
        """A change of the layout is to be seen soon, though every shard may have nothing to do for longer."""
        return min(REST_SECONDS / 2, max(0.0, min(self._due.values()) - now))


async def stepped(move: ShardMove, broker: Broker, *, walks: bool, refusals: Apart) -> float:
    """Do one thing for a shard; one that knows a newer layout teaches it to us, one of a newer format is left alone."""
    try:
        pause = await move.step(walks=walks)
    except FormatTooNew as error:
        refusals.refuse(move.shard, error)
        return REST_SECONDS
    except LayoutOutdated as error:
        broker.learn(error.layout)
        return 0.0
    refusals.serve(move.shard)
    return pause


class Stranded:
    """In reapers: sees to batches on their way whose mover is gone, with no scanner to go on with them."""

    blocks = True

    def __init__(self, lane: Lane, connection: AsyncConnection, *, acknowledge: Acknowledge | None) -> None:
        """Look at the shards of a lane."""
        self.name, self._lane, self._broker = lane.named("stranded"), lane, lane.broker
        self._connection, self._acknowledge = connection, acknowledge
        self._seen: dict[
            int, tuple[int, float]
        ] = {}  # shard → its oldest batch, and since when; monotonic seconds
        self._moves: dict[int, ShardMove] = {}  # what we have taken upon us
        self._refusals = Apart(self.name)
        self.alarm = Alarm()

    async def step(self) -> float:
        """Look once; end what has not changed for a while."""
        for shard, move in list(self._moves.items()):
            pause = await stepped(move, self._broker, walks=False, refusals=self._refusals)
            if pause >= REST_SECONDS and not move.under_way:
                del self._moves[shard]
        for shard in set(self._lane.shards) - self._moves.keys():
            oldest = await self._connection.one(self._broker.departed(shard, whole=False))
            token, since = self._seen.get(shard, (0, 0.0))
            if not oldest.token or oldest.token != token:
                self._seen[shard] = oldest.token, time.monotonic()
            elif time.monotonic() - since >= STRANDED_SECONDS:
                self._take(shard)
        if self._moves:
            return PAGE_SECONDS
        return STRANDED_SECONDS / 2 if self._broker.layout.moves or any(self._held()) else SETTLED_SECONDS

    def _held(self) -> Iterable[int]:
        return (token for token, _ in self._seen.values())

    def _take(self, shard: int) -> None:
        log.warning("stranded", extra={"fields": {"shard": shard, "queue": self._broker.queue}})
        self._moves[shard] = ShardMove(
            *(shard, self._broker, self._connection), acknowledge=self._acknowledge
        )
