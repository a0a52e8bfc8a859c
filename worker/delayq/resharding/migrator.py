"""Services of a change of shards: Migrator for the tasks, AbandonedMigrations for what a migrator left behind.

docs/decisions/0026 says what each may do.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from delayq.errors import FormatTooNew
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import ShardMapOutdated
from delayq.resharding.migration import MOST_WAITING, NEAR_MS, PAGE_SECONDS, REST_SECONDS, ShardMigration
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.write_durability import Durability
    from delayq.resharding.migration import ScanProgress
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

STRANDED_SECONDS = 5.0  # as long as a batch on its way may have no migrator, before others see to it
SETTLED_SECONDS = 10.0  # between looks while nothing moves: only a fail-over leaves a batch behind then


class Migrator:
    """Moves the tasks of the shards of a shard group that this scanner leads."""

    blocks = True  # a shard that tasks go to may be away

    def __init__(
        self,
        group: ShardGroup,
        connection: AsyncConnection,
        *,
        led: Callable[[], Collection[int]],
        durability: Durability | None = None,
        near_ms: int = NEAR_MS,
    ) -> None:
        """`led` are the shards that we lead, of any shard group; `connection` is the low-priority one."""
        self.name, self._group, self._commands, self._led = group.named("move"), group, group.commands, led
        self._connection, self._durability, self._near_ms = connection, durability, near_ms
        self._moves: dict[int, ShardMigration] = {}
        self._due: dict[int, float] = {}  # shard → monotonic seconds
        self._failed = set[int]()  # shards whose last try did
        self._refusals = PerShard(self.name)
        self.alarm = Alarm()

    @property
    def scans(self) -> Mapping[int, ScanProgress]:
        """How far each shard that we lead is; nothing while none moves."""
        if not self._commands.shard_map.moves:
            return {}
        return {shard: move.scan for shard, move in self._moves.items() if move.scan.tasks or move.scan.done}

    async def step(self) -> float:
        """Do one thing for the shard that has waited longest for it."""
        led = set(self._led()) & set(self._group.shards)
        for shard in self._moves.keys() - led:
            del self._moves[shard], self._due[shard]
            self._failed.discard(shard)
        for shard in led - self._moves.keys():
            self._moves[shard] = ShardMigration(
                *(shard, self._commands, self._connection),
                durability=self._durability,
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
        scans = self._commands.shard_map.moves
        pause = await stepped(self._moves[shard], self._commands, scans=scans, refusals=self._refusals)
        self._failed.discard(shard)
        self._due[shard] = time.monotonic() + pause
        return PAGE_SECONDS if pause else 0.0

    def _pause(self, now: float) -> float:
        """A change of the shard map is to be seen soon, though every shard may have nothing to do for longer."""
        return min(REST_SECONDS / 2, max(0.0, min(self._due.values()) - now))


async def stepped(move: ShardMigration, commands: Commands, *, scans: bool, refusals: PerShard) -> float:
    """Do one step for a shard. Adopt a newer shard map if it has one; skip a shard of a newer format."""
    try:
        pause = await move.step(scans=scans)
    except FormatTooNew as error:
        refusals.refuse(move.shard, error)
        return REST_SECONDS
    except ShardMapOutdated as error:
        commands.learn(error.shard_map)
        return 0.0
    refusals.serve(move.shard)
    return pause


class AbandonedMigrations:
    """In reapers: sees to batches on their way whose migrator is gone, with no scanner to go on with them."""

    blocks = True

    def __init__(
        self, group: ShardGroup, connection: AsyncConnection, *, durability: Durability | None
    ) -> None:
        """Look at the shards of a shard group."""
        self.name, self._group, self._commands = group.named("abandoned_migrations"), group, group.commands
        self._connection, self._durability = connection, durability
        self._seen: dict[
            int, tuple[int, float]
        ] = {}  # shard → its oldest batch, and since when; monotonic seconds
        self._moves: dict[int, ShardMigration] = {}  # what we have taken upon us
        self._refusals = PerShard(self.name)
        self.passes = 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Look once; end what has not changed for a while."""
        for shard, move in list(self._moves.items()):
            pause = await stepped(move, self._commands, scans=False, refusals=self._refusals)
            if pause >= REST_SECONDS and not move.under_way:
                del self._moves[shard]
        for shard in set(self._group.shards) - self._moves.keys():
            oldest = await self._connection.one(self._commands.list_migrating(shard, whole=False))
            token, since = self._seen.get(shard, (0, 0.0))
            if not oldest.token or oldest.token != token:
                self._seen[shard] = oldest.token, time.monotonic()
            elif time.monotonic() - since >= STRANDED_SECONDS:
                self._take(shard)
        if self._moves:
            return PAGE_SECONDS
        if self._commands.shard_map.moves or any(self._held()):
            return STRANDED_SECONDS / 2
        self.passes += 1
        return SETTLED_SECONDS

    def _held(self) -> Iterable[int]:
        return (token for token, _ in self._seen.values())

    def _take(self, shard: int) -> None:
        log.warning("migration_resumed", extra={"fields": {"shard": shard, "queue": self._commands.queue}})
        self._moves[shard] = ShardMigration(
            *(shard, self._commands, self._connection), durability=self._durability
        )
