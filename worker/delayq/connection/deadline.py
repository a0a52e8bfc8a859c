"""Until when something may take, shared by all who have a part in it: their waits do not add up."""

from __future__ import annotations

import time
from typing import Final, Self

DOUBT_SECONDS: Final = 1.0  # without an answer, until we ask whether that is still the master
CHECK_SECONDS: Final = 1.0  # for an idle connection to show that it is alive; a new one costs no more
LEAST_SECONDS: Final = 0.01  # to read what has come already, whenever it did


class Deadline:
    """So many seconds from now."""

    def __init__(self, seconds: float) -> None:
        """Begin now."""
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin again, because the caller did something else meanwhile."""
        self._until = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds until then; a moment when it is over."""
        return max(LEAST_SECONDS, self._until - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        return time.monotonic() >= self._until

    def within(self, seconds: float) -> Self:
        """Return one that is over after so many seconds, or when this one is."""
        return type(self)(min(seconds, self.left))
