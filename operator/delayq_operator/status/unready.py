"""Which DelayQueues are not ready for longer than a start takes, without an event. Pure.

One that stops being ready is told at once, by the change of its condition (report.py). One that never gets there has no
such change: without this, its events would end with "Created".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq_operator.base.names import Key

START_SECONDS: Final = 60.0
"""Pods get ready, and a Redis that is made along with them, mostly within this."""

OUT_OF_ORDER: Final = frozenset(
    {"Unreachable", "PartiallyUnreachable", "ScannersNotReady", "WorkersNotReady"}
)
"""Unintended reasons of Ready that have no event of their own."""

NOW: Final = 0.0


class Unready:
    """Remembers since when, and who was told."""

    def __init__(self) -> None:
        """Counts from now on, also for those that were not ready before."""
        self._since: dict[Key, float] = {}
        self._told: set[Key] = set()

    def wait_seconds(self, key: Key, ready: Mapping[str, Any], now: float) -> float | None:
        """Return how long to wait before it is told: NOW, once, or None for not at all; `ready` is the condition."""
        if ready["reason"] not in OUT_OF_ORDER:
            self.forget(key)
            return None
        wait = self._since.setdefault(key, now) + START_SECONDS - now
        if key in self._told:
            return None
        if wait > 0:
            return wait
        self._told.add(key)
        return NOW

    def told(self, key: Key) -> None:
        """Tell no more: it was told otherwise."""
        self._told.add(key)

    def forget(self, key: Key) -> None:
        """It is ready, or gone, or not ready on purpose."""
        self._since.pop(key, None)
        self._told.discard(key)
