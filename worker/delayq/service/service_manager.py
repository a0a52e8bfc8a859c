"""The loops of a process: some run for good, others for as long as there is the lane that they look after.

A queue may gain and lose shards while its processes run, and nothing of that asks for a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from delayq.service.loop import Loop, Service
from delayq.service.shard_groups import lanes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from delayq.protocol.commands import Broker
    from delayq.service.counters import ProcessTally
    from delayq.service.shard_groups import Lane

LINGER_SECONDS = 1.0  # between looks whether a lane that is no more has done what it still had to
REST_SECONDS = 3600.0  # whatever changes rings


class Crew(Protocol):
    """A process, as its Roster knows it."""

    def opened(self, lane: Lane) -> Iterable[Service]:
        """Return what looks after a lane that is new."""

    async def closed(self, lane: Lane) -> bool:
        """Put away what belonged to a lane that is no more; False while there is something left to do for it."""

    async def changed(self) -> None:
        """Look at the shards again; lanes that are new have been opened."""


class Roster:
    """Runs the loops of one process."""

    name, blocks = "roster", False

    def __init__(self, crew: Crew, broker: Broker, tally: ProcessTally, *, apart: bool) -> None:
        """Nothing is open before open(), and nothing runs before start(). `apart` is Address.apart."""
        self._crew, self._broker, self._tally, self._apart = crew, broker, tally, apart
        self._tasks: dict[Loop, asyncio.Task[None] | None] = {}
        self._lanes: list[Lane] = []
        self._started = False
        self.alarm = broker.changed
        self.add(self)

    @property
    def loops(self) -> Sequence[Loop]:
        """Those there are now."""
        return tuple(self._tasks)

    def add(self, service: Service, lane: Lane | None = None, *, part: bool = False) -> Loop:
        """Run a service from start() on, for a lane, for a part of it, or for good."""
        loop = Loop(service, self._tally, lane, part=part)
        self._tasks[loop] = asyncio.create_task(loop.run()) if self._started else None
        return loop

    async def drop(self, *loops: Loop) -> None:
        """End loops, wherever they are."""
        tasks = [task for loop in loops if (task := self._tasks.pop(loop, None)) is not None]
        for loop in loops:
            loop.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def open(self) -> None:
        """Open the lanes that are new."""
        for lane in lanes(self._broker, apart=self._apart):
            if lane not in self._lanes:
                self._lanes.append(lane)
                for service in self._crew.opened(lane):
                    self.add(service, lane)

    def start(self) -> None:
        """Run them all."""
        self._started = True
        for loop in self._tasks:
            self._tasks[loop] = asyncio.create_task(loop.run())

    async def step(self) -> float:
        """Open and close lanes, as the layout has them now."""
        self.open()
        await self._crew.changed()
        there = lanes(self._broker, apart=self._apart)
        for lane in [lane for lane in self._lanes if lane not in there]:
            if await self._crew.closed(lane):
                self._lanes.remove(lane)
                await self.drop(*(loop for loop in self.loops if loop.lane == lane))
        return REST_SECONDS if len(self._lanes) == len(there) else LINGER_SECONDS

    async def end(self, *, finish: Collection[Loop] = (), seconds: float = 0.0) -> None:
        """End all loops: those to `finish` may do so within some seconds, the others must at once."""
        for loop in finish:
            loop.stop()
        await self.drop(*(loop for loop in self.loops if loop not in finish))
        if tasks := [task for task in self._tasks.values() if task is not None]:
            await asyncio.wait(tasks, timeout=seconds)
        await self.drop(*self.loops)
