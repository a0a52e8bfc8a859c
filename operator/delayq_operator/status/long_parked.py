"""Finds DelayQueues with tasks that have been parked for PARKED_SECONDS: a person must act. Pure.

A rollout parks some for a moment: workers of the earlier image claim tasks of a kind that only the later one knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.status.unready import NOW

if TYPE_CHECKING:
    from delayq_operator.base.names import Key
    from delayq_operator.status.view import View

PARKED_SECONDS: Final = 120.0


class LongParked:
    """Stores since when each queue has had parked tasks."""

    def __init__(self) -> None:
        """Start without a state: times count from the first call for a key."""
        self._since: dict[Key, float] = {}

    def wait_seconds(self, view: View, now: float) -> float | None:
        """Return NOW if tasks have been parked for so long; seconds to wait; None without any, or if unknown."""
        key = view.resource.key
        if view.backlog is None or not view.backlog.whole:
            return None
        if not view.backlog.parked:
            self.forget(key)
            return None
        since = self._since.setdefault(key, now - PARKED_SECONDS if _reported(view) else now)
        return max(NOW, since + PARKED_SECONDS - now)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._since.pop(key, None)


def _reported(view: View) -> bool:
    """Whether the operator reported it before it restarted."""
    found = view.resource.status.get("conditions") or ()
    return any((each["type"], each["reason"]) == ("Degraded", "TasksParked") for each in found)
