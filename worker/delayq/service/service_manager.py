"""The loops of a process: some run for its whole life, others while their shard group exists.

The number of shards may change while processes run, without a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from delayq.service.loop import Loop, Service
from delayq.service.shard_groups import groups

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from delayq.protocol.commands import Commands
    from delayq.service.counters import ProcessCounters
    from delayq.service.shard_groups import ShardGroup

LINGER_SECONDS = 1.0  # between checks whether a removed shard group has finished its work
REST_SECONDS = 3600.0  # changes of the shard map ring the alarm


class Services(Protocol):
    """A process, as its ServiceManager uses it."""

    def opened(self, group: ShardGroup) -> Iterable[Service]:
        """Return the services of a new shard group."""

    async def closed(self, group: ShardGroup) -> bool:
        """Close a removed shard group; False while it has work left."""

    async def changed(self) -> None:
        """Adopt the current shards; new shard groups are open already."""


class ServiceManager:
    """Runs the loops of one process."""

    name, blocks = "service_manager", False

    def __init__(
        self, owner: Services, commands: Commands, counters: ProcessCounters, *, is_cluster: bool
    ) -> None:
        """Open nothing before open(), and run nothing before start(). `is_cluster` is Address.is_cluster."""
        self._owner, self._commands, self._counters, self._is_cluster = owner, commands, counters, is_cluster
        self._tasks: dict[Loop, asyncio.Task[None] | None] = {}
        self._groups: list[ShardGroup] = []
        self._started = False
        self.alarm = commands.changed
        self.add(self)

    @property
    def loops(self) -> Sequence[Loop]:
        """The current loops."""
        return tuple(self._tasks)

    def add(self, service: Service, group: ShardGroup | None = None, *, part: bool = False) -> Loop:
        """Run a service from start() on, for a shard group, for a part of it, or for the whole process."""
        loop = Loop(service, self._counters, group, part=part)
        self._tasks[loop] = asyncio.create_task(loop.run()) if self._started else None
        return loop

    async def drop(self, *loops: Loop) -> None:
        """Cancel loops."""
        tasks = [task for loop in loops if (task := self._tasks.pop(loop, None)) is not None]
        for loop in loops:
            loop.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def open(self) -> None:
        """Open new shard groups."""
        for group in groups(self._commands, is_cluster=self._is_cluster):
            if group not in self._groups:
                self._groups.append(group)
                for service in self._owner.opened(group):
                    self.add(service, group)

    def start(self) -> None:
        """Start all loops."""
        self._started = True
        for loop in self._tasks:
            self._tasks[loop] = asyncio.create_task(loop.run())

    async def step(self) -> float:
        """Open and close shard groups according to the current shard map."""
        self.open()
        await self._owner.changed()
        there = groups(self._commands, is_cluster=self._is_cluster)
        for group in [group for group in self._groups if group not in there]:
            if await self._owner.closed(group):
                self._groups.remove(group)
                await self.drop(*(loop for loop in self.loops if loop.group == group))
        return REST_SECONDS if len(self._groups) == len(there) else LINGER_SECONDS

    async def end(self, *, finish: Collection[Loop] = (), seconds: float = 0.0) -> None:
        """End all loops: those in `finish` may complete their step within `seconds`, others are cancelled."""
        for loop in finish:
            loop.stop()
        await self.drop(*(loop for loop in self.loops if loop not in finish))
        if tasks := [task for task in self._tasks.values() if task is not None]:
            await asyncio.wait(tasks, timeout=seconds)
        await self.drop(*self.loops)
