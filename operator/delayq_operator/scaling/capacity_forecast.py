"""Stabilizes the forecast of a rush that maxReplicas workers cannot start in time. Pure.

Every sample forecasts again, with small differences, and may miss the rush once. The reported rush changes rarely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq_operator.scrape.changes import near

if TYPE_CHECKING:
    from delayq.scaling import Shortfall

SURE_SECONDS: Final = 5.0
"""A rush is reported after it was forecast for this long."""
OVER_SECONDS: Final = 60.0
"""A rush is over after it was absent for this long."""
SAME_RUSH_SECONDS: Final = 30.0
SAME_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rush:
    """A rush as reported."""

    at: float
    """Start, Unix seconds."""
    needed: int
    late_seconds: float


class CapacityForecast:
    """The forecast of one queue."""

    def __init__(self, *, reported: bool = False) -> None:
        """`reported`: whether the previous operator reported a rush; then the first forecast is not delayed."""
        self.rush: Rush | None = None
        self._since: float | None = 0.0 if reported else None
        self._seen_at = 0.0

    def update(self, shortfall: Shortfall | None, now: float) -> None:
        """Update with the forecast of a sample; None: no shortfall."""
        if shortfall is None:
            if now - self._seen_at > OVER_SECONDS:
                self.rush = self._since = None
            elif self.rush is None:
                self._since = None
            return
        self._seen_at = now
        self._since = now if self._since is None else self._since
        made = Rush(
            at=now + shortfall.in_seconds, needed=shortfall.needed, late_seconds=shortfall.late_seconds
        )
        if now - self._since >= SURE_SECONDS and (self.rush is None or _moved(self.rush, made)):
            self.rush = made


def _moved(reported: Rush, made: Rush) -> bool:
    return not (
        near(made.at, reported.at, SAME_RUSH_SECONDS)
        and near(made.needed, reported.needed, 0.0, SAME_SHARE)
        and near(made.late_seconds, reported.late_seconds, 1.0, SAME_SHARE)
    )
