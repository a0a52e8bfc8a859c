"""spec.limits in virtual time: when the next task may begin. Of the queue as a whole, as if it had a single shard."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq.contract import Limits


class Gate:
    """A rate with a burst, and a number in flight; an absent limit does not apply."""

    def __init__(self, limits: Limits | None = None) -> None:
        """The time before was quiet: a whole burst may begin."""
        rate = limits.rate_per_second if limits else None
        self._most = (limits.max_in_flight if limits else None) or inf
        self._interval = 1 / rate if rate else 0.0
        self._full = self._interval * ((limits.burst if limits else None) or rate or 0)
        self._dry = -inf

    def opens(self, at: float, in_flight: int) -> float:
        """Return when a task may begin that could at `at`; inf until another one ends."""
        if in_flight >= self._most:
            return inf
        return max(at, self._dry + self._interval - self._full)

    def begin(self, at: float) -> None:
        """Take note of one that does."""
        self._dry = max(at, self._dry) + self._interval
