"""When a changed reading of a queue enqueues a reconciliation. Pure.

A change of facts does at once. A significant change of numbers alone does at most every NUMBERS_SECONDS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBERS_SECONDS: Final = 12.0
"""At least so long between two writes of status that change numbers only."""

AT_ONCE: Final = 0.0
EXACT_UP_TO: Final = 100  # beyond, two digits are enough to tell a change
SAME_SECONDS: Final = 5.0  # a time is read anew each time, and lands a second earlier or later
SAME_SHARE: Final = 0.2  # of a measured duration


@dataclass(slots=True)
class Reported:
    """What a queue was last enqueued for."""

    facts: object = None
    numbers: tuple[object, ...] = ()
    """Counts, durations in seconds as floats, and what else changes as often."""
    times: tuple[float | None, ...] = ()
    """Unix seconds."""
    _enqueued_at: float = -math.inf

    def wait_seconds(
        self, facts: object, numbers: tuple[object, ...], times: tuple[float | None, ...], now: float
    ) -> float | None:
        """Return how long to wait before a reconciliation; None: nothing changed significantly."""
        if facts != self.facts:
            self.facts, self.numbers, self.times, self._enqueued_at = facts, numbers, times, now
            return AT_ONCE
        if alike(numbers, self.numbers) and alike(times, self.times, SAME_SECONDS, 0.0):
            return None
        self.numbers, self.times = numbers, times
        if self._enqueued_at < now:  # otherwise an enqueue is still scheduled
            self._enqueued_at = max(now, self._enqueued_at + NUMBERS_SECONDS)
        return min(NUMBERS_SECONDS, self._enqueued_at - now)


def alike(
    some: Sequence[object], others: Sequence[object], seconds: float = 0.001, share: float = SAME_SHARE
) -> bool:
    """Whether no number changed significantly; `seconds` or a share is how far a float may move."""
    return len(some) == len(others) and all(
        near(one, other, seconds, share)
        if isinstance(one, float) and isinstance(other, float)
        else _rounded(one) == _rounded(other)
        for one, other in zip(some, others, strict=True)
    )


def _rounded(value: object) -> object:
    return bucket(value) if isinstance(value, int) else value


def bucket(number: int) -> int:
    """Return the number to two digits, or all of it when it is small."""
    return number if number <= EXACT_UP_TO else round(number, 2 - len(str(number)))


def near(one: float, other: float, distance: float, share: float = 0.0) -> bool:
    """Whether two numbers differ by no more than a distance, or a share of the other."""
    return abs(one - other) <= max(distance, share * other)
