"""The shard map's next step: every scanner may propose its document's, and the leader of shard 0 carries it out.

Not here: migration (migrator.py). docs/contributing/decisions/0026 says why two concurrent coordinators are safe.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from delayq.errors import DelayQError
from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import UNSTAMPED, ShardMap
from delayq.resharding.migration import ANY_MS, ShardMigration
from delayq.resharding.migrator import stepped
from delayq.resharding.shard_map_sync import SETTLED_SECONDS
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from delayq.connection import AsyncConnection
    from delayq.contract import DelayQueue
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ShardMapState
    from delayq.protocol.write_durability import Durability

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between polls during resharding; else SETTLED_SECONDS
TELL_SECONDS = 10.0  # between two times that a settled shard map is sent to every shard
ANNOUNCE_SECONDS = 2 * SETTLED_SECONDS + 1  # at least: within this time every live process has polled


@dataclass
class DesiredShards:
    """The document's number of shards, and whether it may propose it: pods of an older document must not revert it."""

    shards: int
    stamp: str  # uid:generation, or UNSTAMPED
    found: str = field(default="", init=False)  # the last requester when this process started
    asked: bool = field(default=False, init=False)

    @classmethod
    def of(cls, queue: DelayQueue) -> DesiredShards:
        """Read it from a document."""
        uid, generation = queue.metadata.uid, queue.metadata.generation
        stamp = UNSTAMPED if uid is None or generation is None else f"{uid}:{generation}"
        return cls(queue.spec.shards, stamp)

    def next(self, shard_map: ShardMap) -> ShardMap | None:
        """Return the shard map to propose; None without a change or permission, or while tasks migrate."""
        self.found = self.found or shard_map.asked
        if not self._may(shard_map):
            return None
        if self.shards == shard_map.target:
            self.asked = True
            return None
        return shard_map.announcing(self.shards, self.stamp)

    def _may(self, shard_map: ShardMap) -> bool:
        if self.stamp == UNSTAMPED:
            return not self.asked and shard_map.asked == UNSTAMPED
        if shard_map.asked == UNSTAMPED:
            return True
        uid, _, generation = self.stamp.rpartition(":")
        other, _, last = shard_map.asked.rpartition(":")
        if uid == other:
            return int(generation) > int(last)
        return shard_map.asked == self.found  # of another DelayQueue of this name, which was there before us

    def refused(self, shard_map: ShardMap) -> str:
        """Return why the document's number may not be proposed; empty if it may, or for pods of an older document."""
        self.found = self.found or shard_map.asked
        if self.shards == shard_map.target or self._may(shard_map):
            return ""
        uid, other = self.stamp.rpartition(":")[0], shard_map.asked.rpartition(":")[0]
        if self.stamp != UNSTAMPED:
            return "" if uid == other else f"another DelayQueue, of uid {other}, asked later"
        if shard_map.asked == UNSTAMPED:
            return "another document without metadata.uid asked later; start a scanner to ask again"
        return f"a DelayQueue in Kubernetes ({shard_map.asked}) asked for it; a document without metadata.uid may not"


class ReshardingCoordinator:
    """Proposes the document's number of shards, and carries out the steps while this scanner leads shard 0."""

    name, blocks = "resharding", True

    def __init__(
        self,
        commands: Commands,
        connection: AsyncConnection,
        *,
        wish: DesiredShards,
        durability: Durability | None = None,
        led: Callable[[], Collection[int]],
        announce_seconds: float,
    ) -> None:
        """`durability` must confirm migrated tasks. Within `announce_seconds` all processes serve announced shards."""
        self._commands, self._connection, self._wish, self._led = commands, connection, wish, led
        self._durability, self._announce_seconds = durability, announce_seconds
        self._epoch, self._since = -1, 0.0  # the last epoch, and since when, monotonic seconds
        self._tell_at = 0.0
        self._strays: dict[int, ShardMigration] = {}  # dropped shards that hold tasks
        self._refused = ""  # the last logged refusal
        self._refusals = PerShard(self.name)
        self.alarm = Alarm()

    async def step(self) -> float:
        """Read the shard map, propose another, carry out a step."""
        known = self._commands.shard_map if self._commands.shard_map.epoch else None
        if not known and self._wish.shards > 1:
            await self._check_placed()
        first = ShardMap.first(self._wish.shards, self._wish.stamp)
        state = await self._connection.one(
            self._commands.sync_shard_map(0, known or first, proposed=not known)
        )
        self._follow(state)
        wished = self._wish.next(self._commands.shard_map)
        if wished is not None:
            await self._propose(wished)
        self._note_refusal(self._commands.shard_map)
        if 0 not in self._led() or state.erased:
            self._epoch = -1
            return SETTLED_SECONDS if self._commands.shard_map.settled else LOOK_SECONDS
        return await self._lead(self._commands.shard_map)

    async def _check_placed(self) -> None:
        """Warn of tasks without a shard map: they may have been stored with another number of shards."""
        state = await self._connection.one(self._commands.sync_shard_map(0))
        if state.shard_map is None and state.tasks:
            fields = {"queue": self._commands.queue, "tasks": state.tasks, "shards": self._wish.shards}
            log.warning("shard_map_missing", extra={"fields": fields})

    def _note_refusal(self, shard_map: ShardMap) -> None:
        before, self._refused = self._refused, self._wish.refused(shard_map)
        if self._refused and self._refused != before:
            fields = {"asked": self._wish.shards, "stays": shard_map.target, "because": self._refused}
            log.warning("resharding_refused", extra={"fields": {"queue": self._commands.queue, **fields}})

    def _follow(self, state: ShardMapState) -> bool:
        return state.shard_map is not None and self._commands.apply_shard_map(state.shard_map)

    async def _propose(self, shard_map: ShardMap) -> None:
        """Propose a shard map to shard 0, unless another shard has a newer one than shard 0."""
        if not await self._tell_all(self._commands.shard_map):
            return
        self._follow(await self._connection.one(self._commands.sync_shard_map(0, shard_map, proposed=True)))
        decided = self._commands.shard_map
        self._wish.asked |= replace(decided, epoch=shard_map.epoch) == shard_map

    async def _tell_all(self, shard_map: ShardMap, first: int = 0) -> list[ShardMapState] | None:
        """Send the shard map to all shards, dropped ones included; None when one has a newer map or is unreachable."""
        pinned, shards = self._commands.pinned_to(shard_map), range(first, shard_map.widest)
        answers = await self._connection.answers(
            [
                pinned.sync_shard_map(shard, shard_map)
                if shard < shard_map.shards_in_use
                else pinned.retire_shard(shard)
                for shard in shards
            ]
        )
        found = [answer for answer in answers if not isinstance(answer, DelayQError)]
        changed = [self._follow(state) for state in found]
        return None if any(changed) or len(found) < len(answers) else found

    async def _lead(self, shard_map: ShardMap) -> float:
        now = time.monotonic()
        if shard_map.epoch != self._epoch:
            self._epoch, self._since, self._tell_at = shard_map.epoch, now, 0.0
        if shard_map.settled:
            return await self._keep(shard_map, now)
        found = await self._tell_all(shard_map)
        if found is None or await self._revived(shard_map, found):
            return LOOK_SECONDS
        if shard_map.moves:
            ready = all(state.home_epoch == shard_map.epoch for state in found[: shard_map.shards_in_use])
        else:
            ready = now - self._since >= self._announce_seconds
        following = shard_map.next_step()
        if ready and following is not None:
            self._follow(
                await self._connection.one(self._commands.sync_shard_map(0, following, proposed=True))
            )
            return 0.0
        return LOOK_SECONDS / 2

    async def _keep(self, shard_map: ShardMap, now: float) -> float:
        """Send the shard map to all shards periodically; migrate tasks that a dropped shard has received."""
        if now >= self._tell_at:
            found = await self._tell_all(shard_map, first=1) or []  # shard 0 has it already
            self._tell_at = now + TELL_SECONDS
            if await self._revived(shard_map, found[: shard_map.shards_in_use - 1]):
                return 0.0
            for shard, state in enumerate(found[shard_map.shards_in_use - 1 :], shard_map.shards_in_use):
                if state.tasks and shard not in self._strays:
                    log.warning(
                        "misplaced_tasks_found", extra={"fields": {"shard": shard, "tasks": state.tasks}}
                    )
                    self._strays[shard] = ShardMigration(
                        *(shard, self._commands, self._connection),
                        durability=self._durability,
                        near_ms=ANY_MS,
                    )
        pause = SETTLED_SECONDS
        for shard, move in list(self._strays.items()):
            pause = min(pause, await stepped(move, self._commands, scans=True, refusals=self._refusals))
            if move.scan.done and not move.under_way:
                del self._strays[shard]
        return pause

    async def _revived(self, shard_map: ShardMap, found: Sequence[ShardMapState]) -> bool:
        """Increase the epoch if a shard was erased but others were not: the erased one rejects older epochs."""
        erased = max((state.erased for state in found), default=0)
        if erased:
            log.warning("partial_erase_detected", extra={"fields": {"queue": self._commands.queue}})
            later = replace(shard_map, epoch=erased + 1)
            self._follow(await self._connection.one(self._commands.sync_shard_map(0, later, proposed=True)))
        return erased > 0
