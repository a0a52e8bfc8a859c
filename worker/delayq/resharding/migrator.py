"""Services of resharding: Migrator, and AbandonedMigrations for batches without a migrator. See decision 0026."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from delayq.errors import UnsupportedFormat
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import ShardMapOutdated
from delayq.resharding.migration import MOST_WAITING, PAGE_SECONDS, REST_SECONDS, ShardMigration
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.write_durability import Durability
    from delayq.resharding.migration import ScanProgress
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

STRANDED_SECONDS = 5.0  # after which a reaper completes a batch without progress
SETTLED_SECONDS = 10.0  # between polls while no task migrates: only a fail-over leaves a batch then


class Migrator:
    """Migrates the tasks of a shard group's shards that this scanner leads."""

    blocks = True  # a target shard may be down

    def __init__(
        self,
        group: ShardGroup,
        connection: AsyncConnection,
        *,
        led: Callable[[], Collection[int]],
        durability: Durability | None = None,
    ) -> None:
        """`led` returns the shards that we lead, in all shard groups; `connection` is the low-priority one."""
        self.name, self._group, self._commands, self._led = group.named("move"), group, group.commands, led
        self._connection, self._durability = connection, durability
        self._moves: dict[int, ShardMigration] = {}
        self._due: dict[int, float] = {}  # shard → monotonic seconds
        self._failed = set[int]()  # shards whose last step failed
        self._refusals = PerShard(self.name)
        self.alarm = Alarm()

    @property
    def scans(self) -> Mapping[int, ScanProgress]:
        """The progress of each shard that we lead; empty while no task migrates."""
        if not self._commands.shard_map.moves:
            return {}
        return {shard: move.scan for shard, move in self._moves.items() if move.scan.tasks or move.scan.done}

    async def step(self) -> float:
        """Do one call for the shard that has waited longest."""
        led = set(self._led()) & set(self._group.shards)
        for shard in self._moves.keys() - led:
            del self._moves[shard], self._due[shard]
            self._failed.discard(shard)
        for shard in led - self._moves.keys():
            self._moves[shard] = ShardMigration(
                *(shard, self._commands, self._connection), durability=self._durability
            )
            self._due[shard] = 0.0
        if not self._due:
            return REST_SECONDS / 2
        shard = min(self._due, key=lambda shard: (self._due[shard], shard))
        now = time.monotonic()
        if self._due[shard] > now:
            if shard not in self._failed:
                return self._pause(now)
            # Wait within the step: returning would count as a success, and log an outage as new every second.
            await self.alarm.wait(self._due[shard] - now)
        return await self._tried(shard)

    async def _tried(self, shard: int) -> float:
        self._due[shard] = time.monotonic() + REST_SECONDS  # if it fails, other shards do not wait for it
        self._failed.add(shard)
        self._moves[shard].most_waiting = MOST_WAITING // max(1, len(self._led()))
        scans = self._commands.shard_map.moves
        pause = await stepped(self._moves[shard], self._commands, scans=scans, refusals=self._refusals)
        self._failed.discard(shard)
        self._due[shard] = time.monotonic() + pause
        return PAGE_SECONDS if pause else 0.0

    def _pause(self, now: float) -> float:
        """Return the pause until the next step; limited, so that a new shard map is noticed soon."""
        return min(REST_SECONDS / 2, max(0.0, min(self._due.values()) - now))


async def stepped(move: ShardMigration, commands: Commands, *, scans: bool, refusals: PerShard) -> float:
    """Do one step for a shard. Adopt a newer shard map if it has one; skip a shard of another format."""
    try:
        pause = await move.step(scans=scans)
    except UnsupportedFormat as error:
        refusals.refuse(move.shard, error)
        return REST_SECONDS
    except ShardMapOutdated as error:
        commands.apply_shard_map(error.shard_map)
        return 0.0
    refusals.serve(move.shard)
    return pause


class AbandonedMigrations:
    """In reapers: completes batches whose migrator died, if no scanner does."""

    blocks = True

    def __init__(
        self, group: ShardGroup, connection: AsyncConnection, *, durability: Durability | None
    ) -> None:
        """Watch the shards of a shard group."""
        self.name, self._group, self._commands = group.named("abandoned_migrations"), group, group.commands
        self._connection, self._durability = connection, durability
        self._seen: dict[
            int, tuple[int, float]
        ] = {}  # shard → its oldest batch, and since when; monotonic seconds
        self._moves: dict[int, ShardMigration] = {}  # shards with an abandoned batch
        self._refusals = PerShard(self.name)
        self.passes = 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Poll all shards; complete batches without progress for STRANDED_SECONDS."""
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
