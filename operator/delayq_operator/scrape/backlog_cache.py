"""Cache of the last reading of a queue's scanners; decides when a reading enqueues a reconciliation. Pure.

A change of state enqueues at once. A significant change of numbers alone enqueues at most every NUMBERS_SECONDS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq_operator.scrape.backlog import Backlog

NUMBERS_SECONDS: Final = 12.0
"""At least so long between two writes of status that change numbers only."""

FRESH_SECONDS: Final = 20.0
AT_ONCE: Final = 0.0


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
    evaluated_at: float = 0.0
    """When the autoscaler last decided, Unix seconds."""
    _reported: Backlog | None = None
    _wake_at: float = -math.inf
    _late_at: float = -math.inf
    _whole_at: float | None = None

    def fresh(self, now: float) -> Backlog | None:
        """Return the last reading while it is fresh."""
        return self.last if self.last is not None and now - self.last.read_at < FRESH_SECONDS else None

    def take(self, made: Backlog, erased: int, allowed_seconds: float) -> float | None:
        """Keep a reading; `allowed_seconds` is how late tasks may start."""
        reported = self._reported if self.fresh(made.read_at) is not None else None
        more, self.erased = erased > self.erased, max(erased, self.erased)
        if made.whole and made.late_seconds > allowed_seconds:
            self._late_at = made.read_at
        if made.whole or self._whole_at is None:
            self._whole_at = made.read_at
        made = replace(made, late_at=self._late_at, whole_at=self._whole_at)
        self.last, self.read_error = made, ""
        if reported is None or more or made.turned(reported, allowed_seconds):
            self._reported, self._wake_at = made, made.read_at
            return AT_ONCE
        if not made.moved(reported):
            return None
        self._reported = made
        return self._paced(made.read_at)

    def fail(self, why: str, now: float) -> float | None:
        """Store why the read failed; it is reported once the last reading is too old."""
        new, self.read_error = why != self.read_error, why
        if self.fresh(now) is not None:
            return None
        if self.expire(now) is not None:
            return AT_ONCE
        return self._paced(now) if new else None

    def expire(self, now: float) -> float | None:
        """Drop the last reading once it is stale."""
        if self.last is None or self.fresh(now) is not None:
            return None
        self.last = self._reported = None
        self._wake_at = now
        return AT_ONCE

    def _paced(self, now: float) -> float:
        """Return the delay of the next enqueue: NUMBERS_SECONDS after the last; a scheduled one stays."""
        if self._wake_at < now:
            self._wake_at = max(now, self._wake_at + NUMBERS_SECONDS)
        return min(NUMBERS_SECONDS, self._wake_at - now)
