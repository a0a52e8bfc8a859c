"""Reclaim expired leases, in scanners and reapers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

LIMIT = 100  # leases per call
EXAMPLES = 3  # of them in the log
GRACE_SECONDS: Final = 3.0  # the longest pause between two tries of a worker's loop, and a round trip
SLOW_SECONDS: Final = 1.0  # a slower reply shows an outage that affects other processes, too


class Grace:
    """Delays reclaiming after an outage of Redis, so that workers can settle tasks first.

    Leases expire during an outage. Reclaiming them before their workers settle would run finished tasks again.
    """

    def __init__(self) -> None:
        """Start without an outage."""
        self._connects, self._until = 1, 0.0

    def left(self, connects: int, asked_at: float) -> float:
        """Return for how many seconds not to reclaim; call it after each reply of Redis.

        `connects` is the number of connects so far, `asked_at` when the call was sent, monotonic seconds.
        """
        now = time.monotonic()
        if connects > self._connects or now - asked_at > SLOW_SECONDS:
            self._until = now + GRACE_SECONDS
        self._connects = max(1, connects)
        return max(0.0, self._until - now)


async def clamp_leases(commands: Commands, connection: AsyncConnection, shard: int, *, lease_ms: int) -> None:
    """If Redis' clock stepped back, shorten the leases that would last too long."""
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
    """Reclaim up to LIMIT expired leases, and log one line; returns them with their outcomes.

    `before_ms` is Redis' time when the caller saw them expired. A server that hangs may execute the call much later;
    it must not reclaim leases that expired meanwhile because workers could not extend them.
    """
    call = commands.reclaim(shard, max_crashes=max_crashes, limit=LIMIT, before_ms=before_ms)
    taken = await connection.one(call)
    if taken:
        outcomes = Counter(outcome for _, outcome in taken)
        examples = [member for member, _ in taken[:EXAMPLES]]
        fields = {"shard": shard, "leases": len(taken), **outcomes, "examples": examples}
        log.warning("reclaimed", extra={"fields": fields})
    return taken
