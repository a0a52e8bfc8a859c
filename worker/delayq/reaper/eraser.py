"""The eraser: deletes all data of a queue whose DelayQueue was deleted with deletionPolicy Delete, and exits.

One atomic script erases a shard, so no caller sees half of one. Dropped shards still have a shard map, and are erased,
too; shard 0 is the last one, because it has the number of shards. The next pass erases tasks that clients schedule
meanwhile; tasks that they schedule after the last pass remain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from delayq.connection import AsyncConnection
from delayq.errors import DelayQError, Unavailable, UnsupportedFormat
from delayq.protocol.alarm import Alarm
from delayq.protocol.keys import FORMAT
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop

if TYPE_CHECKING:
    from delayq.connection import Address
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1  # before the second pass; each pause is twice the previous one
LONGEST_SECONDS = 2.0


class Erase:
    """Erases shard after shard, in passes, until a pass finds nothing."""

    name, blocks = "erase", False

    def __init__(
        self, commands: Commands, connection: AsyncConnection, *, patience_seconds: float, uid: str = ""
    ) -> None:
        """Erase the tasks of the DelayQueue `uid`; empty: also if another one uses the queue.

        Fail when Redis is unreachable, scanners of another DelayQueue serve the queue, or clients create keys as fast
        as they are erased, for `patience_seconds`.
        """
        self.alarm, self.ended = Alarm(), asyncio.Event()
        self.error: DelayQError | None = None
        self.done = False
        self.shards = 0  # that were erased at least once
        self._total = 0  # shards that may hold keys; 0: not known yet
        self.tasks = 0
        self.other = ""  # UID of the DelayQueue that refuses the last call; empty if none does
        self._commands, self._connection, self._patience, self._uid = (
            commands,
            connection,
            patience_seconds,
            uid,
        )
        self._next = self._keys = self._passes = 0  # shard to erase, keys this pass found, passes that ended
        self._answered_at = self._began_at = time.monotonic()

    async def step(self) -> float:
        """Erase one shard; returns the pause before the next pass."""
        try:
            if not self._total:
                self._total = await self._count()
                self._next = self._total - 1
            found = await self._connection.one(self._commands.erase(self._next, self._uid))
        except DelayQError as error:
            waited = time.monotonic() - self._answered_at
            if not isinstance(error, Unavailable) or waited >= self._patience:
                self._end(error)
            raise
        self.other = found.other
        if found.other:
            return self._refused(found.other)
        self._answered_at = time.monotonic()
        self._note(found.keys, found.tasks)
        self._next -= 1
        if self._next >= 0:
            return 0.0
        self._next = self._total - 1
        return self._pass_ended()

    def _refused(self, other: str) -> float:
        """Wait: a DelayQueue that was deleted just now counts for a while, too."""
        if time.monotonic() - self._answered_at >= self._patience:
            what = f"queue {self._commands.queue} is in use: scanners of another DelayQueue, of uid {other}, serve it"
            self._end(
                DelayQError(f"{what}. Nothing more is erased; delete that DelayQueue, or keep the tasks")
            )
        return LONGEST_SECONDS

    async def _count(self) -> int:
        """Return the largest number of shards so far, by the shard maps of all known shards."""
        known, read = len(self._commands.shards), 0
        while read < known:
            calls = [self._commands.sync_shard_map(shard) for shard in range(read, known)]
            read, found = known, await self._connection.run(calls)
            known = max([known, *(state.shard_map.widest for state in found if state.shard_map is not None)])
        await self._check_format(known)
        return known

    async def _check_format(self, shards: int) -> None:
        """Raise UnsupportedFormat before anything is erased if erase.lua would refuse any shard."""
        found = await self._connection.run([self._commands.counts(shard) for shard in range(shards)])
        for shard, each in enumerate(found):
            tasks = each.waiting + each.parked + each.in_flight + each.dead
            if each.format > FORMAT or (each.format < FORMAT and tasks):
                raise UnsupportedFormat(self._commands.queue, shard, found=each.format, known=FORMAT)

    def _note(self, keys: int, tasks: int) -> None:
        self._keys += keys
        self.tasks += tasks
        self.shards = max(self.shards, self._total - self._next)
        if keys or not self._passes:
            fields = {"shard": self._next, "shards": self._total, "tasks": tasks}
            log.info("shard_erased", extra={"fields": fields})

    def _pass_ended(self) -> float:
        found, self._keys = self._keys, 0
        self._passes += 1
        if not found:
            self.done = True
            log.info("erased", extra={"fields": {"queue": self._commands.queue, "tasks": self.tasks}})
            self._end(None)
        elif time.monotonic() - self._began_at >= self._patience and self._passes > 1:
            self._end(
                DelayQError(
                    f"queue {self._commands.queue} is in use: clients create keys as fast as they are erased"
                )
            )
        return min(FIRST_PAUSE_SECONDS * float(2 ** min(self._passes, 10)), LONGEST_SECONDS)

    def _end(self, error: DelayQError | None) -> None:
        self.error = error
        self.ended.set()


class Eraser:
    """The service of one eraser process."""

    def __init__(
        self, commands: Commands, address: Address, *, patience_seconds: float, uid: str = ""
    ) -> None:
        """Connect nothing before run()."""
        self.counters = ProcessCounters("eraser", commands.queue)
        self._connection = AsyncConnection(address)
        self.erase = Erase(commands, self._connection, patience_seconds=patience_seconds, uid=uid)
        self.loops = (Loop(self.erase, self.counters),)

    async def run(self, stop: asyncio.Event, _hurry: asyncio.Event) -> None:
        """Return when nothing is left; DelayQError if that failed."""
        self.erase.ended = stop  # a signal and the end of erasing set the same event
        [loop] = self.loops
        task = asyncio.create_task(loop.run())
        try:
            await stop.wait()
        finally:
            loop.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._connection.close()
        if not self.erase.done:
            raise self.erase.error or DelayQError("stopped before everything was erased")
