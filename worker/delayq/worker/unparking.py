"""Returns parked tasks to their index once a worker has their kind and version.

During a rolling update, older workers park them again. So a worker returns no more than it has free slots for, and
waits longer each time that tasks were parked since its last look: the older workers have other tasks to claim.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.worker.slots import Slots

NEXT_SECONDS = 0.02  # between two looks while tasks are returned, and none comes back
KINDS_SECONDS = (5.0, 60.0)  # the first and the longest pause of an App
EVERY_TASK_SECONDS = 60.0  # of other handlers: tasks are parked only if an App served the queue before


class Unparking:
    """Looks for parked tasks that this worker can run, in bounded calls."""

    name, blocks = "unparking", True

    def __init__(
        self,
        commands: Commands,
        connection: AsyncConnection,
        slots: Slots,
        kinds: Collection[tuple[str, int | None]] | None,
    ) -> None:
        """`kinds` are those that the handler can run, of every version with None; None: every task."""
        self._commands, self._connection, self._slots, self._kinds = commands, connection, slots, kinds
        self._app = kinds is not None and any(name for name, _ in kinds)
        self._left: dict[int, int] = {}  # shard to the number of tasks that the last look left parked
        self._pause = KINDS_SECONDS[0]
        self.alarm = Alarm()

    async def step(self) -> float:
        """Return some tasks of each shard; returns the pause until the next look."""
        limit = min(BATCH, self._slots.free) if self._slots.may_claim else 0
        if limit <= 0:
            return KINDS_SECONDS[0]
        shards = [keys.shard for keys in self._commands.shards]
        calls = [self._commands.unpark(shard, self._kinds, limit=limit) for shard in shards]
        more = again = False
        for shard, answer in zip(shards, await self._connection.answers(calls), strict=True):
            if isinstance(answer, Exception):
                raise answer
            returned, left = answer
            more = more or returned >= limit
            again = again or returned + left > self._left.get(shard, left + returned)
            self._left[shard] = left
        if not again:
            self._pause = KINDS_SECONDS[0]
            if more:
                return NEXT_SECONDS
        pause = self._pause if self._app else EVERY_TASK_SECONDS
        self._pause = min(2 * self._pause, KINDS_SECONDS[1]) if again else self._pause
        return pause * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads the workers' looks
