"""A rush that the most workers allowed could not master, as people are told of it: once, not every other second. Pure.

It is forecast anew with every look, and lands a little earlier or later, larger or smaller, or for one look not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delayq.scaling import Shortfall

SURE_SECONDS: Final = 5.0
"""How long it has to be forecast until it is told."""
OVER_SECONDS: Final = 60.0
"""How long it has to be absent until it is over."""
SAME_RUSH_SECONDS: Final = 30.0
SAME_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rush:
    """What people are told."""

    at: float
    """When it begins, Unix seconds."""
    needed: int
    late_seconds: float


class CapacityForecast:
    """Of one queue."""

    def __init__(self, *, told: bool = False) -> None:
        """`told` if people know of one from an earlier operator: then it is not news."""
        self.rush: Rush | None = None
        self._since: float | None = 0.0 if told else None
        self._seen_at = 0.0

    def look(self, shortfall: Shortfall | None, now: float) -> None:
        """Take note of a forecast."""
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


def _moved(told: Rush, made: Rush) -> bool:
    return (
        abs(told.at - made.at) > SAME_RUSH_SECONDS
        or abs(told.needed - made.needed) > told.needed * SAME_SHARE
        or abs(told.late_seconds - made.late_seconds) > max(1.0, told.late_seconds * SAME_SHARE)
    )
