"""Taking expired leases back, as scanners and reapers both do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.broker import Broker
    from delayq.connection import AsyncConnection

log = logging.getLogger(__name__)

LIMIT = 100  # leases a call may take back


async def reclaim(
    broker: Broker, connection: AsyncConnection, shard: int, *, max_crashes: int
) -> list[tuple[str, str]]:
    """Take back up to LIMIT leases that ran out, and log each; returns them with their outcomes."""
    taken = await connection.one(broker.reclaim(shard, max_crashes=max_crashes, limit=LIMIT))
    for member, outcome in taken:
        log.warning("reclaimed", extra={"fields": {"lease": member, "outcome": outcome}})
    return taken
