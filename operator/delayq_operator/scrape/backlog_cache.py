"""What the scanners of a queue last said, and when that is worth a reconciliation. Pure.

What people are told in words is, at once. Numbers alone are it as seldom as they are written to status, and only when a
person would say that they became others.
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
    """Of one queue. What takes something returns how long to wait before a reconciliation; None: none is needed."""

    last: Backlog | None = None
    complaint: str = ""
    """Why the scanners could not be read; empty when they could."""
    erased: int = 0
    """How many shards the erase Job said it has erased."""
    leader: str = ""
    """The pod to ask first."""
    _told: Backlog | None = None
    _wake_at: float = -math.inf
    _late_at: float = -math.inf
    _whole_at: float | None = None

    def fresh(self, now: float) -> Backlog | None:
        """Return the last reading, while it can be believed."""
        return self.last if self.last is not None and now - self.last.read_at < FRESH_SECONDS else None

    def take(self, made: Backlog, erased: int, allowed_seconds: float) -> float | None:
        """Keep a reading; `allowed_seconds` is how late tasks may start."""
        told = self._told if self.fresh(made.read_at) is not None else None
        more, self.erased = erased > self.erased, max(erased, self.erased)
        if made.whole and made.late_seconds > allowed_seconds:
            self._late_at = made.read_at
        if made.whole or self._whole_at is None:
            self._whole_at = made.read_at
        made = replace(made, late_at=self._late_at, whole_at=self._whole_at)
        self.last, self.complaint = made, ""
        if told is None or more or made.turned(told, allowed_seconds):
            self._told, self._wake_at = made, made.read_at
            return AT_ONCE
        if not made.moved(told):
            return None
        self._told = made
        return self._paced(made.read_at)

    def complain(self, why: str, now: float) -> float | None:
        """Store why the read failed; it is reported once the last reading is too old."""
        new, self.complaint = why != self.complaint, why
        if self.fresh(now) is not None:
            return None
        if self.expire(now) is not None:
            return AT_ONCE
        return self._paced(now) if new else None

    def expire(self, now: float) -> float | None:
        """Drop the last reading when it cannot be believed any more."""
        if self.last is None or self.fresh(now) is not None:
            return None
        self.last = self._told = None
        self._wake_at = now
        return AT_ONCE

    def _paced(self, now: float) -> float:
        """Return when to wake so that one wake is long enough after the other; the one that is due stays due."""
        if self._wake_at < now:
            self._wake_at = max(now, self._wake_at + NUMBERS_SECONDS)
        return min(NUMBERS_SECONDS, self._wake_at - now)
