"""Values measured from workers: the mean handler time, and the lead time from creation to the first claim.

The caller stores both (the operator in `status`) and passes them back with `since`.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final

from delayq.scaling.policy import HANDLER_SECONDS, LEAD_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TASKS_REMEMBERED: Final = 500
STARTS_REMEMBERED: Final = 20
STARTS_ENOUGH: Final = 5
"""With fewer starts, the stored value counts if it is greater."""
SIZES: Final = 6
"""Classes of simultaneous starts; the last one has no upper bound."""
UNSEEN_FACTOR: Final = 1.5
PERCENTILE: Final = 0.95
LONGEST_LEAD_SECONDS: Final = 3600.0
LONGEST_HANDLER_SECONDS: Final = 604_800.0  # the most that delivery.handlerTimeoutSeconds takes
MOST_TASKS: Final = 2**53
MOST_KINDS: Final = 128
"""Kinds with a mean of their own: those of two versions of a handler."""
APART: Final = 2.0
"""Means of kinds that differ by less than this factor are as good as one mean."""


class HandlerTime:
    """The mean time of the last few hundred handlers, over all workers of a queue.

    A worker's counters contain only handlers that have ended. The mean is at least the time for which no busy worker
    has ended one, so that ten-minute handlers do not count as short ones for ten minutes.
    """

    def __init__(self, since: float | None = None) -> None:
        """`since` is the stored value; it has the weight of a single task."""
        self._seconds, self._tasks = (0.0, 0.0) if since is None else (since, 1.0)
        self._counters: dict[str, tuple[float, float]] = {}
        self._moved_at: dict[str, float] = {}
        self._stuck: dict[str, float] = {}

    @property
    def seconds(self) -> float | None:
        """The mean; None without data."""
        stuck = self.stuck_seconds
        if self._tasks:
            return max(stuck, self._seconds / self._tasks)
        return stuck if stuck > HANDLER_SECONDS else None

    @property
    def stuck_seconds(self) -> float:
        """For how long no busy worker has ended a handler."""
        return min(self._stuck.values(), default=0.0)

    def take(self, worker: str, seconds: float, tasks: float, *, older: bool = False) -> None:
        """Add a worker's counters: time in handlers and number of handlers, since it started.

        `older`: the worker started before the measurement. Its first counters are old, and count only without other
        data. Impossible counters are ignored.
        """
        if not 0 <= tasks <= MOST_TASKS or not 0 <= seconds <= tasks * LONGEST_HANDLER_SECONDS:
            return
        known_seconds, known_tasks = self._counters.get(worker, (0.0, 0.0))
        if tasks < known_tasks:  # its container has restarted
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
        """Record whether a worker is busy, after take()."""
        if not busy:
            self._moved_at.pop(worker, None)
            self._stuck.pop(worker, None)
        else:
            self._stuck[worker] = max(0.0, now - self._moved_at.setdefault(worker, now))

    def forget(self, but: Collection[str]) -> None:
        """Drop the data of all workers but these."""
        for known in (self._counters, self._moved_at, self._stuck):
            for worker in known.keys() - set(but):
                del known[worker]


class KindTimes:
    """The mean handler time of each kind of task."""

    def __init__(self) -> None:
        """Nothing is stored: workers report all runs since they started."""
        self._kinds: dict[str, HandlerTime] = {}

    def take(self, kind: str, worker: str, seconds: float, tasks: float, *, older: bool = False) -> None:
        """Add a worker's counters of one kind, as HandlerTime.take() does."""
        # The kind that no worker has reported for the longest time is the first.
        self._kinds[kind] = self._kinds.pop(kind) if kind in self._kinds else HandlerTime()
        self._kinds[kind].take(worker, seconds, tasks, older=older)
        if len(self._kinds) > MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]

    @property
    def seconds(self) -> dict[str, float]:
        """The mean of each kind that has one; empty if no two of them differ enough to matter."""
        means = {kind: mean for kind, time in self._kinds.items() if (mean := time.seconds) is not None}
        longest, shortest = max(means.values(), default=0.0), min(means.values(), default=0.0)
        return means if longest and longest >= APART * shortest else {}

    def forget(self, but: Collection[str]) -> None:
        """Drop the data of all workers but these; the means stay."""
        for time in self._kinds.values():
            time.forget(but)


class LeadTime:
    """From creating a worker to its first claim, by simultaneous starts, which share nodes and registries.

    For each class of starts (1, 2 to 3, 4 to 7, …), the p95 of the last ones counts, plus a margin: half of it after
    one start, a fifth after four, a twentieth after nineteen. A class larger than any measured one is assumed to need
    half as much again, and at least LEAD_SECONDS.
    """

    def __init__(self, since: float | None = None, *, sizes: int = 1) -> None:
        """`since` is the stored value of the first `sizes` classes, margin included."""
        self._since = {} if since is None else dict.fromkeys(range(sizes), since)
        self._starts: dict[int, deque[float]] = {}
        self._known: set[str] = set()

    @property
    def seconds(self) -> float | None:
        """The time of a single start; None without data."""
        return self.of(1)

    def of(self, starts: int) -> float | None:
        """Return the time of so many simultaneous starts; None without data."""
        return next((seconds for least, seconds in reversed(self.by_starts) if least <= starts), None)

    @property
    def by_starts(self) -> tuple[tuple[int, float], ...]:
        """Minimum of simultaneous starts → seconds; empty without data."""
        learnt = {size: seconds for size in range(SIZES) if (seconds := self._learnt(size)) is not None}
        return _rising(learnt, LEAD_SECONDS)

    @property
    def likely(self) -> tuple[tuple[int, float], ...]:
        """The same as measured, without the margins: what a reader should expect, not what a decision may rely on."""
        measured = {size: _p95(starts) for size, starts in self._starts.items()}
        return _rising(self._since | measured, 0.0)

    def _learnt(self, size: int) -> float | None:
        since, starts = self._since.get(size), self._starts.get(size)
        if not starts:
            return since
        found = _p95(starts) * (1 + 1 / (len(starts) + 1))
        return found if since is None or len(starts) >= STARTS_ENOUGH else max(since, found)

    @property
    def soonest_seconds(self) -> float | None:
        """The shortest measured start; None without one."""
        return min((each for starts in self._starts.values() for each in starts), default=None)

    def take(self, worker: str, seconds: float, together: int = 1) -> None:
        """Record a worker's start, once; impossible times, from a wrong clock, are ignored.

        `together`: the number of simultaneous starts, this one included.
        """
        if worker not in self._known and 0 < seconds <= LONGEST_LEAD_SECONDS:
            size = min(max(1, together).bit_length(), SIZES) - 1
            self._starts.setdefault(size, deque(maxlen=STARTS_REMEMBERED)).append(seconds)
        self._known.add(worker)

    def forget(self, but: Collection[str]) -> None:
        """Drop the names of all workers but these."""
        self._known &= set(but)


def _p95(starts: Collection[float]) -> float:
    return sorted(starts)[ceil(PERCENTILE * len(starts)) - 1]


def _rising(learnt: Mapping[int, float], least_unmeasured: float) -> tuple[tuple[int, float], ...]:
    """Return minimum of simultaneous starts → seconds, of all classes; empty without data."""
    if not learnt:
        return ()
    unmeasured = max(least_unmeasured, UNSEEN_FACTOR * max(learnt.values()))
    found, least = list[tuple[int, float]](), 0.0
    for size in range(SIZES):
        # More starts are no quicker than fewer, so the next larger measured class is an upper bound.
        least = max(least, next((learnt[each] for each in range(size, SIZES) if each in learnt), unmeasured))
        found.append((1 << size, least))
    return tuple(found)
