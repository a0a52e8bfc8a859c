"""SizeAudit: walks all tasks of a queue and puts its counter of bytes right, should Redis have lost it.

Every script keeps the counter, so mostly there is nothing to do. Where the walk goes on is kept in Redis, for a reaper
may live for a minute only, and any number may walk together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delayq.errors import FormatTooNew
from delayq.protocol.alarm import Alarm
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

PAGE_PAUSE_SECONDS = 0.015  # between pages of half a millisecond: 20,000 tasks a second
REST_SECONDS = 30.0  # between two walks


class SizeAudit:
    """One page after the other, shard by shard; then a rest."""

    name, blocks = "size_audit", False

    def __init__(self, commands: Commands, connection: AsyncConnection) -> None:
        """Begin with the first shard, wherever its walk is."""
        self._commands, self._connection = commands, connection
        self._shard, self._apart = 0, PerShard(self.name)
        self.passes = 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Weigh a page; return how long nothing is to be done."""
        shard = self._shard
        # Whatever comes of it: what is wrong with one shard is not the others' trouble.
        self._shard = shard + 1
        if shard >= len(self._commands.shards):
            self._shard = 0
            self.passes += 1
            return REST_SECONDS
        try:
            page = await self._connection.one(self._commands.audit_size(shard))
        except FormatTooNew as error:
            self._apart.refuse(shard, error)
            return PAGE_PAUSE_SECONDS
        if page.off:
            log.warning("size_counter_repaired", extra={"fields": {"shard": shard, "bytes": page.off}})
        if page.cursor:
            self._shard = shard
        return PAGE_PAUSE_SECONDS
