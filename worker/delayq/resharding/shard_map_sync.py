"""Follow: how a process learns how many shards there are, and tells shard 0 when it knows more.

Not here: who decides (coordinator.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from delayq.protocol.alarm import Alarm
from delayq.protocol.shard_map import ASKED

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

# Between looks; a change is announced for longer than twice that, before anything moves.
SETTLED_SECONDS = 5.0
CHANGING_SECONDS = 1.0  # between looks while tasks move, or are about to
KNOWN_SECONDS = 3600.0


class ShardMapSync:
    """Learns the shard map, and tells shard 0 of a newer one: a fail-over may have forgotten the last second."""

    name, blocks = "shard_map_sync", True

    def __init__(self, commands: Commands, connection: AsyncConnection, *, once: bool = False) -> None:
        """Ask on `connection`; only until some shard map is known, if `once` is enough."""
        self._commands, self._connection, self._once = commands, connection, once
        self._served = not connection.address.apart  # one server has all shards: shard 0 tells, or none does
        self.alarm = Alarm()

    async def step(self) -> float:
        """Ask shard 0, and all others as well while it cannot tell: each knows the newest that it was told of."""
        shards = range(1 if self._served else max(self._commands.shard_map.covers, ASKED))
        self._served = not self._connection.address.apart
        failed, *_ = await asyncio.gather(*map(self._ask, shards), return_exceptions=True)
        if self._once and self._commands.shard_map.epoch:
            return KNOWN_SECONDS
        if failed is not None:
            raise failed
        self._served = True
        return SETTLED_SECONDS if self._commands.shard_map.settled else CHANGING_SECONDS

    async def _ask(self, shard: int) -> None:
        known = self._commands.shard_map if self._commands.shard_map.epoch and not shard else None
        told = await self._connection.one(self._commands.sync_shard_map(shard, known))
        if told.shard_map is not None:
            self._commands.learn(told.shard_map)
