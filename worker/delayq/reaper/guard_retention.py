"""Has a guard forget what it has kept for long enough. Not here: what a guard keeps, and for how long."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from delayq.errors import GuardBusy, GuardUnavailable
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from delayq.contract import Spec
    from delayq.service.counters import ProcessCounters

log = logging.getLogger(__name__)

PRUNE_PAUSE_SECONDS = 0.1  # between two batches


@runtime_checkable
class Ledger(Protocol):
    """A guard that remembers what has taken effect, and should not do so for ever."""

    async def prune(self) -> int:
        """Forget a batch of what is older than its retention; return how many. Raises as guards do."""

    async def close(self) -> None:
        """Let go of connections."""


class GuardRetention:
    """Has the guard forget what it has kept for long enough."""

    name, blocks = "guard_retention", False

    def __init__(self, ledger: Ledger, spec: Spec, counters: ProcessCounters) -> None:
        """Prune every spec.reaper.sweepPeriodSeconds."""
        self._ledger, self._pause, self._counters = ledger, float(spec.reaper.sweep_period_seconds), counters
        self._away = False
        self.passes = 0
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Forget a batch, the next one soon. A database that is down is no reason to restart a reaper."""
        forgotten = await self._prune()
        if forgotten:
            return PRUNE_PAUSE_SECONDS
        self.passes += 1  # also without the database: a later pass may have it again
        return self._pause

    async def _prune(self) -> int:
        try:
            forgotten = await self._ledger.prune()
        except GuardBusy:  # workers need its connections more
            return 0
        except GuardUnavailable as error:
            self._counters.loop_errors[self.name] += 1
            if not self._away:
                fields = {"loop": self.name, "where": error.where, "error": error.why}
                log.warning("guard_prune_failed", extra={"fields": fields})
            self._away = True
            return 0
        self._away = False
        self.done["forgotten"] += forgotten
        if forgotten:
            log.info("guard_pruned", extra={"fields": {"rows": forgotten}})
        return forgotten
