"""Has a guard forget what it has kept for long enough. Not here: what a guard keeps, and for how long."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from delayq.errors import GuardBusy, GuardUnavailable
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from delayq.contract import Spec
    from delayq.service.counters import ProcessTally

log = logging.getLogger(__name__)

PRUNE_PAUSE_SECONDS = 0.1  # between two batches


@runtime_checkable
class Ledger(Protocol):
    """A guard that remembers what has taken effect, and should not do so for ever."""

    async def prune(self) -> int:
        """Forget a batch of what is older than its retention; return how many. Raises as guards do."""

    async def close(self) -> None:
        """Let go of connections."""


class Prune:
    """Has the guard forget what it has kept for long enough."""

    name, blocks = "prune", False

    def __init__(self, ledger: Ledger, spec: Spec, tally: ProcessTally) -> None:
        """Prune every spec.reaper.sweepSeconds."""
        self._ledger, self._pause, self._tally = ledger, float(spec.reaper.sweep_seconds), tally
        self._away = False
        self.done: Counter[str] = Counter()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Forget a batch, the next one soon. A database that is down is no reason to restart a reaper."""
        try:
            forgotten = await self._ledger.prune()
        except GuardBusy:  # workers need its connections more
            return self._pause
        except GuardUnavailable as error:
            self._tally.loop_errors[self.name] += 1
            if not self._away:
                fields = {"loop": self.name, "where": error.where, "error": error.why}
                log.warning("guard_unavailable", extra={"fields": fields})
            self._away = True
            return self._pause
        self._away = False
        self.done["forgotten"] += forgotten
        if forgotten:
            log.info("pruned", extra={"fields": {"rows": forgotten}})
        return PRUNE_PAUSE_SECONDS if forgotten else self._pause
