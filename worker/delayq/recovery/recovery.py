"""Finds expired leases of queues whose document names a check, and recovers their tasks a few at a time.

Not here: the recovery of one task (lease_recovery.py), the checks. Without a check, reclaim.py reclaims many leases in
one call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from delayq.connection import AsyncConnection
from delayq.errors import DelayQError
from delayq.protocol.alarm import Alarm
from delayq.recovery.checks import CONCURRENCY
from delayq.recovery.lease_recovery import ExpiredLease, Recoverer
from delayq.recovery.reclaim import Grace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from delayq.connection import Address
    from delayq.contract import Spec
    from delayq.protocol.commands import Commands
    from delayq.recovery.checks import Check
    from delayq.service.shard_groups import ShardGroup

log = logging.getLogger(__name__)

PAGE = 100  # leases per call
POLL_SECONDS = 5.0  # the longest pause between two polls
# Before the next try of a lease that another process recovers, or whose recovery failed; doubled with each try.
# Otherwise leases behind many such ones would have no turn where one pass over all of them takes longer.
BUSY_SECONDS, LONGEST_BUSY_SECONDS = 1.0, 8.0


class NoCheckError(DelayQError):
    """CONCURRENCY checks still run after their timeout: no lease is recovered until one ends."""


class Recovery:
    """Recovers up to CONCURRENCY tasks at a time, of its shards."""

    name, blocks = "recovery", False

    def __init__(
        self, commands: Commands, address: Address, spec: Spec, check: Check, *, shards: Iterable[int] = ()
    ) -> None:
        """Connect nothing before the first step. `shards` are the initial shards, see watch()."""
        self._commands, self._connection = commands, AsyncConnection(address)
        self._recoverer = Recoverer(commands, self._connection, spec, check)
        self._runner, self.done = self._recoverer.runner, self._recoverer.done
        self.lacks = check.lacks
        # A lease granted after a poll cannot expire sooner than this.
        self._longest = min(POLL_SECONDS, float(spec.delivery.lease_duration_seconds))
        self._running: dict[ExpiredLease, asyncio.Task[None]] = {}
        self._busy: dict[ExpiredLease, float] = {}  # lease to its next try, monotonic seconds
        self._pauses: dict[ExpiredLease, float] = {}  # the last pause of leases that were left, seconds
        self._last = -1  # the last polled shard
        self._stuck = False
        self._grace = Grace()
        self.shards = set(shards)
        self.passes = 0
        self.alarm = Alarm()
        self._alarms = [self.alarm]

    def of(self, group: ShardGroup) -> Recovery | GroupRecovery:
        """Return the recovery of one shard group; the server of another group cannot delay it."""
        if group.only is None:
            return self
        found = GroupRecovery(self, group)
        self._alarms.append(found.alarm)
        return found

    @property
    def hangs(self) -> bool:
        """Whether checks on the event loop ignore their cancellation."""
        return self._runner.hangs

    def watch(self, shard: int, *, leads: bool) -> None:
        """Add or remove a shard; recoveries under way continue."""
        (self.shards.add if leads else self.shards.discard)(shard)
        self._ring()

    def _ring(self) -> None:
        for alarm in self._alarms:
            alarm.ring()

    @property
    def busy(self) -> int:
        """The number of leases that wait for their next try."""
        return len(self._busy)

    async def step(self) -> float:
        """Start recoveries up to CONCURRENCY; the end of each rings the alarm."""
        pause = await self.recover_some(self.shards, self.alarm)
        self.passes += self.settled(self.shards)
        return pause

    def settled(self, shards: Collection[int]) -> bool:
        """Whether the last poll left nothing to recover in these shards."""
        left = any(lease.shard in shards for lease in (*self._running, *self._busy))
        return not left and not self._grace.left(self._connection.connects, time.monotonic())

    async def recover_some(self, shards: Collection[int], alarm: Alarm) -> float:
        """Start recoveries of some of the shards."""
        await self._await_check(alarm)
        now = time.monotonic()
        self._busy = {lease: until for lease, until in self._busy.items() if until > now}
        pause = self._longest
        # Round robin: each step starts after the last shard, so that slow checks of one shard do not delay others.
        for shard in sorted(shards, key=lambda shard: (shard <= self._last, shard)):
            if not self._room:
                break
            self._last = shard
            pause = min(pause, await self._page_through(shard))
        return min([pause, *(max(0.001, until - now) for until in self._busy.values())])

    async def _await_check(self, alarm: Alarm) -> None:
        """While CONCURRENCY checks hang: raise once, for the log and metrics, then wait until the probes fail.

        Only a restart ends hanging threads, and no lease may be recovered without its check.
        """
        while (abandoned := self._runner.abandoned) >= CONCURRENCY:
            if not self._stuck:
                self._stuck = True
                raise NoCheckError(
                    f"{abandoned} checks still run after their timeout: no other task is checked until one ends"
                )
            await alarm.wait(BUSY_SECONDS)
        self._stuck = False

    @property
    def _room(self) -> int:
        return max(0, CONCURRENCY - len(self._running) - self._runner.abandoned)

    async def _page_through(self, shard: int) -> float:
        """Start recoveries, skipping those under way; returns the seconds until the next expiry."""
        offset = 0
        while self._room:
            asked_at = time.monotonic()
            page = await self._connection.one(self._commands.expired(shard, offset=offset, limit=PAGE))
            if grace := self._grace.left(self._connection.connects, asked_at):
                return grace
            for lease in (ExpiredLease(shard, member) for member in page.members):
                if self._room and lease not in self._running and lease not in self._busy:
                    self._begin(lease)
            if not offset and not page.members:
                self._pauses = {lease: pause for lease, pause in self._pauses.items() if lease.shard != shard}
            if len(page.members) < PAGE:
                return self._longest if page.next_seconds is None else page.next_seconds + 0.001
            offset += PAGE
        return self._longest

    def _begin(self, lease: ExpiredLease) -> None:
        self._running[lease] = task = asyncio.create_task(self._recover(lease))
        task.add_done_callback(partial(self._ended, lease))

    def _ended(self, lease: ExpiredLease, _task: asyncio.Task[None]) -> None:
        del self._running[lease]
        self._ring()

    async def _recover(self, lease: ExpiredLease) -> None:
        """Recover one task; after an error, try again later."""
        try:
            if not await self._recoverer.recover(lease):
                self._leave(lease)
        except DelayQError as error:
            self._leave(lease)
            fields = {"task_id": lease.task_id, "error": str(error)}
            log.warning("recovery_failed", extra={"fields": fields})
        except Exception:
            self._leave(lease)
            log.exception("recovery_failed", extra={"fields": {"task_id": lease.task_id}})

    def _leave(self, lease: ExpiredLease) -> None:
        self._pauses[lease] = min(LONGEST_BUSY_SECONDS, 2 * self._pauses.get(lease, BUSY_SECONDS / 2))
        self._busy[lease] = time.monotonic() + self._pauses[lease]

    async def close(self) -> None:
        """Cancel recoveries under way, and release their locks."""
        running = dict(self._running)
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
        with suppress(DelayQError):  # else the locks expire
            await self._recoverer.unlock(running)
        await self._connection.close()


class GroupRecovery:
    """The part of a recovery that serves one shard group; all groups share the concurrency."""

    blocks = False

    def __init__(self, recovery: Recovery, group: ShardGroup) -> None:
        """See Recovery.of()."""
        self.name, self._recovery, self._group = group.named("recovery"), recovery, group
        self.passes = 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Start recoveries of this shard group."""
        shards = self._recovery.shards.intersection(self._group.swept)
        pause = await self._recovery.recover_some(shards, self.alarm)
        self.passes += self._recovery.settled(shards)
        return pause
