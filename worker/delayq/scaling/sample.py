"""A sample: one reading of a queue and its workers. Pure data.

Not here: its source (the operator's scrapes, or a simulation).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FINE_BINS: Final = 40
FINEST_SECONDS: Final = 0.5
NEAR_SECONDS: Final = 60.0
NEAR_STEP_SECONDS: Final = 1.5
"""All tasks of an interval up to this long are assumed to fall due at once."""

COARSE_FACTOR: Final = 1.4
WIDEST_SECONDS: Final = 60.0
"""A rush that makes tasks late by more than this differs from an even flow anywhere in the outlook."""

OUTLOOK_SECONDS: Final = 3600.0
"""How far ahead a decision searches for a shortfall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading of a queue."""

    overdue: int = 0
    """Tasks that are due and not claimed."""
    overdue_seconds: float = 0.0
    """How long the oldest of them has been due."""
    in_flight: int = 0
    """Tasks with a lease."""
    parked: int = 0
    """Tasks of kinds that no worker knew. They are no demand, but one worker stays for them.

    They wait for a version of it that has them, which a queue without workers would never start.
    """
    due_within: tuple[tuple[float, int], ...] = ()
    """Seconds from now, ascending → tasks that fall due by then; each includes those before it."""
    next_due_seconds: float | None = None
    """Until the next task falls due; None without one."""
    fallen_due: int | None = None
    """Counter of tasks that fell due, to detect tasks that no forecast contains. None: unknown."""
    ready: int = 0
    """Workers that claim."""
    starting: int = 0
    """Workers that start, without those that never became ready."""
    starting_seconds: float = 0.0
    """Age of the youngest of them."""
    handler_seconds: float | None = None
    """Mean handler time; None: not measured yet."""
    kinds: tuple[tuple[float, float], ...] = ()
    """Share of a kind of task among those due by the end of the window → its mean handler time.

    Empty: `handler_seconds` holds for every task.
    """
    quickest_seconds: float | None = None
    """Mean handler time of the kind with the shortest one; None: kinds do not differ, or are not known."""
    lead_seconds: float | None = None
    """From creating a single worker to its first claim, with a margin; None: not measured yet."""
    leads: tuple[tuple[int, float], ...] = ()
    """Minimum of simultaneous starts → lead time. Empty: `lead_seconds` for any number."""
    likely: tuple[tuple[int, float], ...] = ()
    """The same without margins, for messages only. Empty: as `leads`."""
    soonest_seconds: float | None = None
    """The shortest measured start; None: not measured yet."""
    whole: bool = True
    """Whether the numbers contain every shard. If not, they are lower bounds."""

    def lead(self, starts: int) -> float | None:
        """Return the lead time of so many simultaneous starts; None: not measured yet."""
        return _of(self.leads, starts, self.lead_seconds)

    def likely_lead(self, starts: int) -> float | None:
        """Return the same without a margin."""
        return _of(self.likely, starts, self.lead(starts))

    @property
    def mean_seconds(self) -> float | None:
        """Mean handler time of the tasks due by the end of the window; None: not measured yet."""
        return sum(share * seconds for share, seconds in self.kinds) if self.kinds else self.handler_seconds

    @property
    def foreseen(self) -> int:
        """Tasks in the forecast."""
        return self.due_within[-1][1] if self.due_within else 0

    def within(self, seconds: float) -> int:
        """Return the tasks that fall due within `seconds`, or within the next longer horizon."""
        return next((tasks for horizon, tasks in self.due_within if horizon >= seconds), self.foreseen)

    def bins(self) -> Iterator[tuple[float, float, int]]:
        """Divide the forecast into intervals: start, end (seconds from now), tasks."""
        start, before = 0.0, 0
        for horizon, tasks in self.due_within:
            yield start, horizon, max(0, tasks - before)
            start, before = horizon, max(before, tasks)


def _of(by_starts: Sequence[tuple[int, float]], starts: int, otherwise: float | None) -> float | None:
    return next((seconds for least, seconds in reversed(by_starts) if least <= starts), otherwise)


@lru_cache(maxsize=256)
def horizons(window_seconds: float) -> tuple[float, ...]:
    """Return the horizons to request: fine steps in the window, increasingly longer ones up to the outlook, about 120.

    A window of 20 s has steps of half a second, to distinguish a rush from an even flow. The last of them is not
    shorter than the window.
    """
    steps = max(1, min(FINE_BINS, ceil(window_seconds / FINEST_SECONDS)))
    found = [_rounded(window_seconds * (number + 1) / steps) for number in range(steps - 1)]
    found.append(_rounded(window_seconds, up=True))
    while found[-1] < OUTLOOK_SECONDS:
        last = found[-1]
        near = last < NEAR_SECONDS
        wider = last + NEAR_STEP_SECONDS if near else min(last * COARSE_FACTOR, last + WIDEST_SECONDS)
        found.append(_rounded(min(wider, OUTLOOK_SECONDS)))
    return tuple(found)


def _rounded(seconds: float, *, up: bool = False) -> float:
    """Round to six digits: the scanner returns a horizon as a label, which has no more."""
    digits = 5 - floor(log10(seconds))
    near = round(seconds, digits)
    return near if near >= seconds or not up else round(near + 10.0**-digits, digits)
