"""What is learnt from workers: how long handlers take, and how long a worker takes until it claims.

Both are remembered by whoever writes them down (the operator, in status) and taken up again with `since`.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final

from delayq.scaling.policy import HANDLER_SECONDS, LEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

TASKS_REMEMBERED: Final = 500
STARTS_REMEMBERED: Final = 20
STARTS_ENOUGH: Final = 5
PERCENTILE: Final = 0.95
LONGEST_LEAD_SECONDS: Final = 3600.0
LONGEST_HANDLER_SECONDS: Final = 604_800.0  # the most that delivery.handlerTimeoutSeconds takes
MOST_TASKS: Final = 2**53


class HandlerTime:
    """The mean time of the last few hundred handlers, over all workers of a queue.

    Only a handler that has ended is in a worker's counters. So that ten-minute handlers are not taken for short ones
    for ten minutes, the mean is no less than the time for which every busy worker has ended none.
    """

    def __init__(self, since: float | None = None) -> None:
        """`since` is what was known before, worth as little as a single task."""
        self._seconds, self._tasks = (0.0, 0.0) if since is None else (since, 1.0)
        self._told: dict[str, tuple[float, float]] = {}
        self._moved_at: dict[str, float] = {}
        self._stuck: dict[str, float] = {}

    @property
    def seconds(self) -> float | None:
        """The mean; None before anything is known."""
        stuck = min(self._stuck.values(), default=0.0)
        if self._tasks:
            return max(stuck, self._seconds / self._tasks)
        return stuck if stuck > HANDLER_SECONDS else None

    def take(self, worker: str, seconds: float, tasks: float, *, older: bool = False) -> None:
        """Take note of a worker's counters: time in handlers, and how many there were, since it started.

        `older`: it worked before anybody listened. Its first answer is about long ago, and counts only for want of
        anything else. Counters that no worker could have are passed over.
        """
        if not 0 <= tasks <= MOST_TASKS or not 0 <= seconds <= tasks * LONGEST_HANDLER_SECONDS:
            return
        known_seconds, known_tasks = self._told.get(worker, (0.0, 0.0))
        if tasks < known_tasks:  # its container started anew
            known_seconds = known_tasks = 0.0
        first = worker not in self._told
        self._told[worker] = (seconds, tasks)
        more = tasks - known_tasks
        if more <= 0 or (first and older and self._tasks):
            return
        keep = min(1.0, max(0.0, TASKS_REMEMBERED - more) / self._tasks) if self._tasks else 0.0
        self._seconds = self._seconds * keep + max(0.0, seconds - known_seconds)
        self._tasks = self._tasks * keep + more
        self._moved_at.pop(worker, None)

    def watch(self, worker: str, *, busy: int, now: float) -> None:
        """Take note of whether a worker is busy, right after take()."""
        if not busy:
            self._moved_at.pop(worker, None)
            self._stuck.pop(worker, None)
        else:
            self._stuck[worker] = max(0.0, now - self._moved_at.setdefault(worker, now))

    def forget(self, but: Collection[str]) -> None:
        """Drop what is known of workers that are gone."""
        for known in (self._told, self._moved_at, self._stuck):
            for worker in known.keys() - set(but):
                del known[worker]


class LeadTime:
    """From creating a worker to its first claim: the p95 of the last starts.

    The first worker starts alone, in a rush many do at once and take longer: until some were seen, the lead is no less
    than what is taken for a queue of which nothing is known.
    """

    def __init__(self, since: float | None = None) -> None:
        """`since` is what was known before, worth as much as one start."""
        self._starts: deque[float] = deque([] if since is None else [since], STARTS_REMEMBERED)
        self._least = LEAD_SECONDS if since is None else 0.0
        self._known: set[str] = set()

    @property
    def seconds(self) -> float | None:
        """The nearest-rank percentile; None before the first start."""
        ranked = sorted(self._starts)
        if not ranked:
            return None
        found = ranked[ceil(PERCENTILE * len(ranked)) - 1]
        return found if len(ranked) >= STARTS_ENOUGH else max(self._least, found)

    def take(self, worker: str, seconds: float) -> None:
        """Take note of a worker's start, once; a clock that is off must not teach nonsense."""
        if worker not in self._known and 0 < seconds <= LONGEST_LEAD_SECONDS:
            self._starts.append(seconds)
        self._known.add(worker)

    def forget(self, but: Collection[str]) -> None:
        """Drop the names of workers that are gone."""
        self._known &= set(but)
