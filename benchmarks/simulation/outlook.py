"""What a scanner could tell at some time in a simulation: how many tasks fall due within each horizon. Pure."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.simulation.tasks import Tasks


class Outlook:
    """Looks ahead from a time that only goes on. A task that is scheduled later is not seen yet."""

    def __init__(self, tasks: Tasks) -> None:
        """Everything scheduled at the start is seen from the start."""
        self._due, self._scheduled = tasks.due, tasks.scheduled
        # None when all is known: then no task has to be asked whether it is.
        self._known = None if tasks.known_from_start else bytearray(len(tasks))
        self._to_come: Iterator[int] = iter(sorted(range(len(tasks)), key=tasks.scheduled.__getitem__))
        self._next = next(self._to_come, None) if self._known is not None else None

    def fallen_due(self, now: float) -> int:
        """Tasks whose time had come."""
        return bisect_right(self._due, now)

    def within(self, now: float, horizons: Sequence[float]) -> tuple[tuple[float, int], ...]:
        """Count what is known and falls due within each horizon, as ZCOUNT does."""
        self._take_note(now)
        last = bisect_right(self._due, now)
        ends = [bisect_right(self._due, now + horizon, last) for horizon in horizons]
        if self._known is None:
            return tuple((horizon, end - last) for horizon, end in zip(horizons, ends, strict=True))
        counts = accumulate(starmap(partial(self._known.count, 1), pairwise([last, *ends])))
        return tuple(zip(horizons, counts, strict=True))

    def next_due_seconds(self, now: float) -> float | None:
        """Time until the next known task falls due; None when none waits."""
        self._take_note(now)
        at = bisect_right(self._due, now)
        if self._known is not None:
            at = self._known.find(1, at)
        return self._due[at] - now if 0 <= at < len(self._due) else None

    def _take_note(self, now: float) -> None:
        while self._known is not None and self._next is not None and self._scheduled[self._next] <= now:
            self._known[self._next] = 1
            self._next = next(self._to_come, None)
