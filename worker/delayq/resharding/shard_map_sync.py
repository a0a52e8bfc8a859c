"""How a process reads the shard map, and restores shard 0's after a fail-over. Workers read a suspension with it.

Not here: the decision about a new shard map (coordinator.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import ShardMapState, Suspension

# Between polls; resharding is announced for more than twice as long before tasks migrate.
SETTLED_SECONDS = 5.0
CHANGING_SECONDS = 1.0  # between polls during resharding
SUSPENSION_SECONDS = 1.5  # between a worker's polls: `delayq suspend` promises that claims stop within 2 s
KNOWN_SECONDS = 3600.0


class ShardMapSync:
    """Reads the shard map, and sends shard 0 a newer one: a fail-over may have lost the last second of writes."""

    name, blocks = "shard_map_sync", True

    def __init__(
        self,
        commands: Commands,
        connection: AsyncConnection,
        *,
        once: bool = False,
        note: Callable[[Suspension | None], None] | None = None,
    ) -> None:
        """Poll on `connection`; with `once`, only until a shard map is known. `note` gets what suspends the queue."""
        self._commands, self._connection, self._once, self._note = commands, connection, once, note
        self._noted = False  # whether shard 0 has said what suspends the queue
        self.waits_for = "" if note is None else "whether the queue is suspended"
        """Empty once that was read: until then, a worker claims nothing, and so it is not ready."""
        self._served = (
            not connection.address.is_cluster
        )  # without a Cluster, one server has all shards: ask only shard 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Poll shard 0; in a Cluster, while it does not serve, all shards: each stores the newest that it received."""
        shards = range(1 if self._served else max(self._commands.shard_map.shards_in_use, ASKED))
        self._served = not self._connection.address.is_cluster
        answers = await asyncio.gather(*map(self._ask, shards), return_exceptions=True)
        failed = answers[0] if isinstance(answers[0], BaseException) else None
        self._note_copies([each for each in answers if not isinstance(each, BaseException)])
        if self._once and self._commands.shard_map.epoch:
            return KNOWN_SECONDS
        if failed is not None:
            raise failed
        self._served = True
        if not self._commands.shard_map.settled:
            return CHANGING_SECONDS
        return SETTLED_SECONDS if self._note is None else SUSPENSION_SECONDS

    def _note_copies(self, states: Sequence[ShardMapState]) -> None:
        """While shard 0 has never answered, note what the other shards of the queue say."""
        copies = [state.suspension for state in states if state.shard_map is not None]
        if copies and not self._noted:
            self._tell(next(filter(None, copies), None))

    def _tell(self, found: Suspension | None) -> None:
        if self._note is not None:
            self._note(found)
            self.waits_for = ""

    async def _ask(self, shard: int) -> ShardMapState:
        known = self._commands.shard_map if self._commands.shard_map.epoch and not shard else None
        state = await self._connection.one(self._commands.sync_shard_map(shard, known))
        if not shard:
            self._noted = True
            self._tell(state.suspension)
        if state.shard_map is not None:
            self._commands.apply_shard_map(state.shard_map)
        return state
