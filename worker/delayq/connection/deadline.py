"""A deadline that all steps of a call share, so that their waits do not add up."""

from __future__ import annotations

import time
from typing import Final, Self

LATE_SECONDS: Final = 1.0  # without a reply, before discovery checks whether the server is still the master
CHECK_SECONDS: Final = 1.0  # for the health check of an idle connection; a new connection takes no longer
LEAST_SECONDS: Final = 0.01  # to read data that has already arrived


class Deadline:
    """An instant some seconds from now."""

    def __init__(self, seconds: float) -> None:
        """Start now."""
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Restart the time."""
        self._until = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Remaining seconds, at least LEAST_SECONDS."""
        return max(LEAST_SECONDS, self._until - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._until

    def within(self, seconds: float) -> Self:
        """Return a deadline in some seconds, or this one's if that is sooner."""
        return type(self)(min(seconds, self.left))
