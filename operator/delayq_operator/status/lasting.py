"""Finds what has lasted for so long in a DelayQueue that a person must know. Pure.

A rollout parks tasks for a moment: workers of the earlier image claim some of a kind that only the later one has. A
new queue is not ready for a moment; if it never is, no change of a condition posts an event.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.base.names import Key

PARKED_SECONDS: Final = 120.0
START_SECONDS: Final = 60.0
"""Pods, and a Redis that is created with them, usually become ready within this."""
NOW: Final = 0.0
LONG_AGO, REPORTED = -math.inf, math.inf

OUT_OF_ORDER: Final = frozenset(
    {"Unreachable", "PartiallyUnreachable", "ScannersNotReady", "WorkersNotReady"}
)
"""Unintended reasons of Ready that have no event of their own."""


class Lasting:
    """Stores since when something has held of each queue."""

    def __init__(self, seconds: float) -> None:
        """It has lasted after so many seconds."""
        self._seconds = seconds
        self._since: dict[Key, float | None] = {}  # None while it does not hold

    def wait_seconds(self, key: Key, now: float, *, holds: bool, restarted: float | None) -> float | None:
        """Return how long until it has lasted: NOW if it has; None if it does not hold, or was reported.

        `restarted` is since when it holds, for an operator that sees the queue for the first time; None: now.
        """
        since = self._since.get(key, restarted)
        self._since[key] = since = None if not holds else now if since is None else since
        return None if since in (None, REPORTED) else max(NOW, since + self._seconds - now)

    def reported(self, key: Key) -> None:
        """Take note that it was reported, here or elsewhere."""
        self._since[key] = REPORTED

    def forget(self, key: Key) -> None:
        """Drop the state of a queue that is gone."""
        self._since.pop(key, None)


def parked_since(conditions: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return since when tasks are parked, after a restart of the operator."""
    return LONG_AGO if conditions.get("Degraded", {}).get("reason") == "TasksParked" else None


def unready_since(ready: Mapping[str, Any], now: float) -> float:
    """Return since when a queue is not ready, after a restart: if for long, the one before has reported it."""
    since = datetime.fromisoformat(ready["lastTransitionTime"]).timestamp()
    return since if now - since < 2 * START_SECONDS else REPORTED
