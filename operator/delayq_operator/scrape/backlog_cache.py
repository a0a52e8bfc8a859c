"""Cache of the last reading of a queue's scanners. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from delayq_operator.scrape.changes import Reported

if TYPE_CHECKING:
    from delayq_operator.scrape.backlog import Backlog, SuspendCommand

FRESH_SECONDS: Final = 20.0


@dataclass(slots=True)
class BacklogCache:
    """The cache of one queue. Updates return how long to wait before a reconciliation; None: none is needed."""

    last: Backlog | None = None
    read_error: str = ""
    """Why the scanners could not be read; empty when they could."""
    erased: int = 0
    """Shards that the erase Job has erased, as it reports."""
    leader: str = ""
    """The pod to ask first."""
    shards: int = 0
    """The shards to expect, if more than in the spec."""
    command: SuspendCommand | None = None
    """The last known `delayq suspend`, also after the last reading is too old: an outage ends no suspension."""
    evaluated_at: float = 0.0
    """When the autoscaler last decided, Unix seconds."""
    _reported: Reported = field(default_factory=Reported)
    _late_at: float = -math.inf
    _whole_at: float | None = None

    def fresh(self, now: float) -> Backlog | None:
        """Return the last reading while it is fresh."""
        return self.last if self.last is not None and now - self.last.read_at < FRESH_SECONDS else None

    def take(self, made: Backlog, erased: int, allowed_seconds: float) -> float | None:
        """Keep a reading; `allowed_seconds` is how late tasks may start."""
        self.erased, self.command = max(erased, self.erased), made.command
        if made.whole and made.late_seconds > allowed_seconds:
            self._late_at = made.read_at
        if made.whole or self._whole_at is None:
            self._whole_at = made.read_at
        self.last, self.read_error = replace(made, late_at=self._late_at, whole_at=self._whole_at), ""
        facts = self.erased, *self.last.facts(allowed_seconds)
        return self._reported.wait_seconds(facts, made.numbers, made.times, made.read_at)

    def fail(self, why: str, now: float) -> float | None:
        """Store why the read failed, empty without a scanner; reported once the last reading is too old."""
        self.read_error = why
        if self.fresh(now) is not None:
            return None
        self.last = None
        return self._reported.wait_seconds(None, (why,) if why else (), (), now)
