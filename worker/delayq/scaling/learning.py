"""What is learnt from workers: how long handlers take, and how long a worker takes until it claims.

Both are remembered by whoever writes them down (the operator, in status) and taken up again with `since`.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

TASKS_REMEMBERED: Final = 500
STARTS_REMEMBERED: Final = 20
PERCENTILE: Final = 0.95
LONGEST_LEAD_SECONDS: Final = 3600.0


class HandlerTime:
    """The mean time of the last few hundred handlers, over all workers of a queue."""

    def __init__(self, since: float | None = None) -> None:
        """`since` is what was known before, worth as little as a single task."""
        self._seconds, self._tasks = (0.0, 0.0) if since is None else (since, 1.0)
        self._told: dict[str, tuple[float, float]] = {}

    @property
    def seconds(self) -> float | None:
        """The mean; None before the first handler."""
        return self._seconds / self._tasks if self._tasks else None

    def take(self, worker: str, seconds: float, tasks: float) -> None:
        """Take note of a worker's counters: time in handlers, and how many there were, since it started."""
        known_seconds, known_tasks = self._told.get(worker, (0.0, 0.0))
        if tasks < known_tasks:  # its container started anew
            known_seconds = known_tasks = 0.0
        self._told[worker] = (seconds, tasks)
        more = tasks - known_tasks
        if more <= 0:
            return
        keep = min(1.0, max(0.0, TASKS_REMEMBERED - more) / self._tasks) if self._tasks else 0.0
        self._seconds = self._seconds * keep + max(0.0, seconds - known_seconds)
        self._tasks = self._tasks * keep + more

    def forget(self, but: Collection[str]) -> None:
        """Drop the counters of workers that are gone."""
        for worker in self._told.keys() - set(but):
            del self._told[worker]


class LeadTime:
    """From creating a worker to its first claim: the p95 of the last starts."""

    def __init__(self, since: float | None = None) -> None:
        """`since` is what was known before, worth as much as one start."""
        self._starts: deque[float] = deque([] if since is None else [since], STARTS_REMEMBERED)
        self._known: set[str] = set()

    @property
    def seconds(self) -> float | None:
        """The nearest-rank percentile; None before the first start."""
        ranked = sorted(self._starts)
        return ranked[ceil(PERCENTILE * len(ranked)) - 1] if ranked else None

    def take(self, worker: str, seconds: float) -> None:
        """Take note of a worker's start, once; a clock that is off must not teach nonsense."""
        if worker not in self._known and 0 < seconds <= LONGEST_LEAD_SECONDS:
            self._starts.append(seconds)
        self._known.add(worker)

    def forget(self, but: Collection[str]) -> None:
        """Drop the names of workers that are gone."""
        self._known &= set(but)
