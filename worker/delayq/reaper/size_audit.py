"""SizeAudit: adds up the sizes of all tasks, and repairs the counter of bytes if Redis has lost it.

Every script updates the counter, so mostly there is nothing to repair. Redis stores the cursor, because a reaper may
run for a minute only, and several may audit together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delayq.errors import UnsupportedFormat
from delayq.protocol.alarm import Alarm
from delayq.service.per_shard import PerShard

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

PAGE_PAUSE_SECONDS = 0.015  # between pages of half a millisecond: 20,000 tasks a second
REST_SECONDS = 30.0  # between two passes


class SizeAudit:
    """Audits page by page, shard by shard."""

    name, blocks = "size_audit", False

    def __init__(self, commands: Commands, connection: AsyncConnection) -> None:
        """Start with the first shard, at the cursor in Redis."""
        self._commands, self._connection = commands, connection
        self._shard, self._refusals = 0, PerShard(self.name)
        self.passes = 0
        self.alarm = Alarm()

    async def step(self) -> float:
        """Audit a page; returns the pause."""
        shard = self._shard
        self._shard = shard + 1  # also after an error: it must not affect other shards
        if shard >= len(self._commands.shards):
            self._shard = 0
            self.passes += 1
            return REST_SECONDS
        try:
            page = await self._connection.one(self._commands.audit_size(shard))
        except UnsupportedFormat as error:
            self._refusals.refuse(shard, error)
            return PAGE_PAUSE_SECONDS
        if page.off:
            log.warning("size_counter_repaired", extra={"fields": {"shard": shard, "bytes": page.off}})
        if page.cursor:
            self._shard = shard
        return PAGE_PAUSE_SECONDS
