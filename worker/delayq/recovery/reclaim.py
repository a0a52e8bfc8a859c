"""Taking expired leases back, as scanners and reapers both do."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

LIMIT = 100  # leases a call may take back
GRACE_SECONDS: Final = 3.0  # the longest pause between two tries of a worker's loop, and a round trip
SLOW_SECONDS: Final = 1.0  # an answer that takes longer was held up, and other processes' calls with it


class Grace:
    """Leaves workers time to settle, after an outage of Redis, what they have finished meanwhile.

    Leases expired meanwhile. Reclaiming them before their workers can settle would run finished tasks again.
    """

    def __init__(self) -> None:
        """There was no outage yet."""
        self._connects, self._until = 1, 0.0

    def left(self, connects: int, asked_at: float) -> float:
        """Return for how many seconds nothing is to be taken back; told after each answer of Redis.

        `connects` is how often its connection was made so far, `asked_at` when it was asked, monotonic seconds.
        """
        now = time.monotonic()
        if connects > self._connects or now - asked_at > SLOW_SECONDS:
            self._until = now + GRACE_SECONDS
        self._connects = max(1, connects)
        return max(0.0, self._until - now)


async def rewind(commands: Commands, connection: AsyncConnection, shard: int, *, lease_ms: int) -> None:
    """Look whether Redis' clock stepped back; if it did, shorten the leases that would last too long by now."""
    shortened = 0
    while (found := await connection.one(commands.clamp_leases(shard, lease_ms))).shortened:
        shortened += found.shortened
    if found.stepped_back_ms:
        fields = {"shard": shard, "ms": found.stepped_back_ms, "leases": shortened}
        log.warning("clock_stepped_back", extra={"fields": fields})


async def reclaim(
    commands: Commands,
    connection: AsyncConnection,
    shard: int,
    *,
    max_crashes: int,
    before_ms: int | None = None,
) -> list[tuple[str, str]]:
    """Take back up to LIMIT leases that ran out, and log each; returns them with their outcomes.

    `before_ms` is when Redis said that they had: a server that hangs may execute this much later, when leases have run
    out that workers could not extend.
    """
    call = commands.reclaim(shard, max_crashes=max_crashes, limit=LIMIT, before_ms=before_ms)
    taken = await connection.one(call)
    for member, outcome in taken:
        log.warning("reclaimed", extra={"fields": {"lease": member, "outcome": outcome}})
    return taken
