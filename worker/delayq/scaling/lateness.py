"""Lateness of tasks, by an exact simulation of batches in which each handler takes the mean time. Pure.

A decision's message uses this instead of the search's fluid model, in which tasks end continuously: tasks of a batch
start and end together. Tasks in flight are assumed to have just started.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from delayq.scaling.model import REST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.scaling.model import Load

PIECES: Final = 40
SHORTEST_SECONDS: Final = 1e-6
"""The shortest handler time: zero would be an endless number of rounds."""


def latest(load: Load, ramp: Sequence[tuple[float, int]]) -> float:
    """Return the greatest lateness with these slots; inf when a task never gets one."""
    return _Course(load, ramp).latest()


class _Course:
    def __init__(self, load: Load, ramp: Sequence[tuple[float, int]]) -> None:
        self._handler = max(SHORTEST_SECONDS, load.handler_seconds)
        self._arrivals = deque(sorted(_arrivals(load)))
        self._steps = deque(sorted(ramp))
        self._running = [(self._handler, float(load.held))] if load.held else []
        self._waiting = deque[tuple[float, float]]()  # due, tasks
        self._slots, self._busy, self._now = 0, float(load.held), 0.0

    def latest(self) -> float:
        late = 0.0
        while self._arrivals or self._waiting:
            self._now = min(self._next(), self._running[0][0] if self._running else inf)
            if self._now == inf:
                return inf
            self._take()
            late = max(late, self._begin())
            self._skip()
        return late

    def _next(self) -> float:
        """Return the time of the next tasks or slots."""
        return min((events[0][0] for events in (self._arrivals, self._steps) if events), default=inf)

    def _take(self) -> None:
        """Apply all events of this instant."""
        while self._running and self._running[0][0] <= self._now:
            self._busy -= heappop(self._running)[1]
        while self._steps and self._steps[0][0] <= self._now:
            self._slots = self._steps.popleft()[1]
        while self._arrivals and self._arrivals[0][0] <= self._now:
            _, due, tasks = self._arrivals.popleft()
            self._waiting.append((due, tasks))

    def _begin(self) -> float:
        """Start tasks in free slots; returns the lateness of the oldest."""
        free, begun, late = self._slots - self._busy, 0.0, 0.0
        while self._waiting and free > REST:
            due, tasks = self._waiting.popleft()
            late = max(late, self._now - due)
            taken = min(free, tasks)
            begun, free = begun + taken, free - taken
            if tasks - taken > REST:
                self._waiting.appendleft((due, tasks - taken))
        if begun:
            self._busy += begun
            heappush(self._running, (self._now + self._handler, begun))
        return late

    def _skip(self) -> None:
        """Skip whole rounds of handlers, in which every slot ends a task and starts one of the oldest."""
        if not self._waiting or self._busy < self._slots - REST or self._slots < 1:
            return
        due, tasks = self._waiting[0]
        coming = self._next() - self._now
        rounds = int(min((tasks - REST) / self._busy, coming / self._handler))
        if rounds > 0:
            self._waiting[0] = due, tasks - rounds * self._busy
            self._running = [(end + rounds * self._handler, count) for end, count in self._running]
            self._now += rounds * self._handler


def _arrivals(load: Load) -> Iterator[tuple[float, float, float]]:
    """Yield time, due time and number of arriving tasks. A flow is divided into pieces of about one task."""
    overdue = load.present - load.held
    if overdue > 0:
        yield 0.0, -load.waited_seconds, overdue
    for start, end, tasks in load.inflows:
        pieces = min(PIECES, max(1, ceil(tasks))) if end > start else 1
        for number in range(pieces):
            at = start + (end - start) * (number + 1) / pieces
            yield at, at, tasks / pieces
