"""Prune a guard's ledger. Not here: what the ledger stores, and for how long."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from delayq.errors import GuardBusy, GuardUnavailable
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from delayq.service.counters import ProcessCounters

log = logging.getLogger(__name__)

PRUNE_PAUSE_SECONDS = 0.1  # between two batches
SWEEP_SECONDS = 5.0
"""Pause of a reaper's services between two passes."""


@runtime_checkable
class Ledger(Protocol):
    """A guard that stores which tasks took effect, with a retention."""

    async def prune(self) -> int:
        """Delete a batch of rows older than the retention; return their number. Raises as guards do."""

    async def close(self) -> None:
        """Close the connections."""


class GuardRetention:
    """Deletes the ledger's rows after their retention."""

    name, blocks = "guard_retention", False

    def __init__(self, ledger: Ledger, counters: ProcessCounters) -> None:
        """Prune every SWEEP_SECONDS."""
        self._ledger, self._pause, self._counters = ledger, SWEEP_SECONDS, counters
        self._unavailable = False
        self.passes = 0
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Delete a batch. A database that is down is no reason to restart a reaper."""
        deleted = await self._prune()
        if deleted:
            return PRUNE_PAUSE_SECONDS
        self.passes += 1  # also if the database is down: a later pass tries again
        return self._pause

    async def _prune(self) -> int:
        try:
            deleted = await self._ledger.prune()
        except GuardBusy:  # workers have precedence for its connections
            return 0
        except GuardUnavailable as error:
            self._counters.loop_errors[self.name] += 1
            if not self._unavailable:
                fields = {"loop": self.name, "where": error.where, "error": error.why}
                log.warning("guard_prune_failed", extra={"fields": fields})
            self._unavailable = True
            return 0
        self._unavailable = False
        self.done["forgotten"] += deleted
        if deleted:
            log.info("guard_pruned", extra={"fields": {"rows": deleted}})
        return deleted
