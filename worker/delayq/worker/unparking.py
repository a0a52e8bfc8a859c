"""Returns parked tasks to their index once a worker knows their kind and version."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm
from delayq.protocol.commands import BATCH

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

# Between two looks at the parked tasks of all shards. During a rolling update, old workers may park what new ones know.
KINDS_SECONDS = 5.0
EVERY_TASK_SECONDS = 60.0  # of a handler for every task: tasks were parked only if it was an App before


class Unparking:
    """Looks for parked tasks that this worker can run, in bounded calls."""

    name, blocks = "unparking", True

    def __init__(
        self, commands: Commands, connection: AsyncConnection, kinds: Collection[tuple[str, int]] | None
    ) -> None:
        """`kinds` are those that the handler can run; None: every task."""
        self._commands, self._connection, self._kinds = commands, connection, kinds
        self._pause = EVERY_TASK_SECONDS if kinds is None else KINDS_SECONDS
        self.alarm = Alarm()

    async def step(self) -> float:
        """Return a batch of each shard; returns the pause until the next look."""
        calls = [self._commands.unpark(keys.shard, self._kinds) for keys in self._commands.shards]
        more = False
        for answer in await self._connection.answers(calls):
            if isinstance(answer, Exception):
                raise answer
            returned, _ = answer
            more = more or returned >= BATCH
        # While there are more, at most a fifth of Redis' time: a batch takes about a millisecond.
        return 0.005 if more else self._pause * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads the workers' looks
