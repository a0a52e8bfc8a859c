"""Finds DelayQueues that do not become ready within START_SECONDS and have no event for it. Pure.

When a DelayQueue stops being ready, the change of the condition posts the event (report.py). One that never becomes
ready has no such change. What a restarted operator finds unready for long has its event already.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.base.names import Key

START_SECONDS: Final = 60.0
"""Pods, and a Redis that is created with them, usually become ready within this."""

OUT_OF_ORDER: Final = frozenset(
    {"Unreachable", "PartiallyUnreachable", "ScannersNotReady", "WorkersNotReady"}
)
"""Unintended reasons of Ready that have no event of their own."""

NOW: Final = 0.0


class Unready:
    """Stores when the event of each queue that is not ready falls due."""

    def __init__(self) -> None:
        """Start without a state: times count from the first call for a key."""
        self._due: dict[
            Key, float | None
        ] = {}  # infinite once the event was posted; None while all is in order

    def wait_seconds(self, key: Key, ready: Mapping[str, Any], now: float) -> float | None:
        """Return when to post the event: NOW, once; seconds to wait; None for never. `ready` is the condition."""
        if ready["reason"] not in OUT_OF_ORDER:
            self._due[key] = None
            return None
        due = self._due.get(key, _due_after_restart(ready, now))
        self._due[key] = due = now + START_SECONDS if due is None else due
        wait = due - now
        if wait <= 0:
            self.reported(key)
            return NOW
        return wait if wait < math.inf else None

    def reported(self, key: Key) -> None:
        """Take note that the event was posted, here or elsewhere."""
        self._due[key] = math.inf

    def forget(self, key: Key) -> None:
        """Drop the state of a queue that is gone."""
        self._due.pop(key, None)


def _due_after_restart(ready: Mapping[str, Any], now: float) -> float:
    since = datetime.fromisoformat(ready["lastTransitionTime"]).timestamp()
    return since + START_SECONDS if now - since < 2 * START_SECONDS else math.inf
