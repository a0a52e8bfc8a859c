"""What is learnt from workers: how long handlers take, and how long a worker takes until it claims.

The caller stores both (the operator, in status) and passes them back with `since`.
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
"""Until so many starts were seen, what was known before counts if it is more."""
SIZES: Final = 6
"""Classes of how many start together; the last one has no upper end."""
UNSEEN_FACTOR: Final = 1.5
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
        self._counters: dict[str, tuple[float, float]] = {}
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
        known_seconds, known_tasks = self._counters.get(worker, (0.0, 0.0))
        if tasks < known_tasks:  # its container started anew
            known_seconds = known_tasks = 0.0
        first = worker not in self._counters
        self._counters[worker] = (seconds, tasks)
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
        for known in (self._counters, self._moved_at, self._stuck):
            for worker in known.keys() - set(but):
                del known[worker]


class LeadTime:
    """From creating a worker to its first claim, by how many workers start together: they share nodes and registries.

    Of the last starts of each class of sizes (1, 2 to 3, 4 to 7, …) the p95 counts, and a margin on top: half of it
    after one start, a fifth after four, a twentieth after nineteen. A class larger than any that was seen is taken to
    need half as much again, and no less than what is taken for a queue of which nothing is known.
    """

    def __init__(self, since: float | None = None, *, sizes: int = 1) -> None:
        """`since` is what was known before of a single start, its margin included; or of that many classes of sizes."""
        self._since = {} if since is None else dict.fromkeys(range(sizes), since)
        self._starts: dict[int, deque[float]] = {}
        self._known: set[str] = set()

    @property
    def seconds(self) -> float | None:
        """The time for a single start; None before anything is known."""
        return self.of(1)

    def of(self, starts: int) -> float | None:
        """Return the time for so many starts at once; None before anything is known."""
        return next((seconds for least, seconds in reversed(self.by_starts) if least <= starts), None)

    @property
    def by_starts(self) -> tuple[tuple[int, float], ...]:
        """From how many starts at once on → seconds; empty before anything is known."""
        learnt = {size: seconds for size in range(SIZES) if (seconds := self._learnt(size)) is not None}
        if not learnt:
            return ()
        guess = max(LEAD_SECONDS, UNSEEN_FACTOR * max(learnt.values()))
        found, least = list[tuple[int, float]](), 0.0
        for size in range(SIZES):
            # More workers are no quicker than fewer, so what is known of more is enough.
            least = max(least, next((learnt[each] for each in range(size, SIZES) if each in learnt), guess))
            found.append((1 << size, least))
        return tuple(found)

    def _learnt(self, size: int) -> float | None:
        since = self._since.get(size)
        ranked = sorted(self._starts.get(size, ()))
        if not ranked:
            return since
        found = ranked[ceil(PERCENTILE * len(ranked)) - 1] * (1 + 1 / (len(ranked) + 1))
        return found if since is None or len(ranked) >= STARTS_ENOUGH else max(since, found)

    @property
    def soonest_seconds(self) -> float | None:
        """The shortest start seen; None before the first."""
        return min((each for starts in self._starts.values() for each in starts), default=None)

    def take(self, worker: str, seconds: float, together: int = 1) -> None:
        """Take note of a worker's start, once; a clock that is off must not teach nonsense.

        `together`: how many started at that time, this one included.
        """
        if worker not in self._known and 0 < seconds <= LONGEST_LEAD_SECONDS:
            size = min(max(1, together).bit_length(), SIZES) - 1
            self._starts.setdefault(size, deque(maxlen=STARTS_REMEMBERED)).append(seconds)
        self._known.add(worker)

    def forget(self, but: Collection[str]) -> None:
        """Drop the names of workers that are gone."""
        self._known &= set(but)
