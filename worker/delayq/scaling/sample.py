"""What a decision is made from: one look at a queue and its workers. Pure data.

Not here: how it is read (the operator scrapes it, a simulation makes it up).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FINE_BINS: Final = 40
FINEST_SECONDS: Final = 0.5
NEAR_SECONDS: Final = 60.0
NEAR_STEP_SECONDS: Final = 1.5
"""All tasks of a stretch up to this long are taken to fall due at once."""

COARSE_FACTOR: Final = 1.4
WIDEST_SECONDS: Final = 60.0
"""A rush that makes tasks late by more than this is told from an even flow as soon as it is in the outlook."""

OUTLOOK_SECONDS: Final = 3600.0
"""How far a decision looks for a rush that all workers together could not master in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a queue."""

    overdue: int = 0
    """Tasks that are due and not claimed."""
    overdue_seconds: float = 0.0
    """How long the oldest of them has been due."""
    in_flight: int = 0
    """Tasks that workers hold a lease of."""
    due_within: tuple[tuple[float, int], ...] = ()
    """Seconds from now, ascending → tasks that fall due by then; each includes those before it."""
    next_due_seconds: float | None = None
    """Until the next task falls due; None when none waits."""
    fallen_due: int | None = None
    """Tasks that ever fell due: a counter that tells what no look ahead could have seen. None: not known."""
    ready: int = 0
    """Workers that claim."""
    starting: int = 0
    """Workers on their way, those that never came apart."""
    starting_seconds: float = 0.0
    """How long ago the youngest of them was created."""
    handler_seconds: float | None = None
    """Mean time that a handler takes; None: not learnt yet."""
    lead_seconds: float | None = None
    """From creating a single worker to its first claim, with a margin; None: not learnt yet."""
    leads: tuple[tuple[int, float], ...] = ()
    """From how many starts at once on → the same for so many. Empty: for any number as for one."""
    soonest_seconds: float | None = None
    """The shortest start of those seen; None: not learnt yet."""
    whole: bool = True
    """Whether every shard is in the numbers. If not, there is at least this much to do."""

    def lead(self, starts: int) -> float | None:
        """From creating so many workers to their first claims; None: not learnt yet."""
        return next(
            (seconds for least, seconds in reversed(self.leads) if least <= starts), self.lead_seconds
        )

    @property
    def foreseen(self) -> int:
        """Tasks in the look ahead."""
        return self.due_within[-1][1] if self.due_within else 0

    def within(self, seconds: float) -> int:
        """Tasks that fall due within a time that was asked for, or the next longer one."""
        return next((tasks for horizon, tasks in self.due_within if horizon >= seconds), self.foreseen)

    def bins(self) -> Iterator[tuple[float, float, int]]:
        """Cut the look ahead into stretches: from, to (seconds from now), tasks."""
        start, before = 0.0, 0
        for horizon, tasks in self.due_within:
            yield start, horizon, max(0, tasks - before)
            start, before = horizon, max(before, tasks)


@lru_cache(maxsize=256)
def horizons(window_seconds: float, outlook_seconds: float = OUTLOOK_SECONDS) -> tuple[float, ...]:
    """Return what to ask for: fine steps in the window that counts now, ever longer ones up to the outlook.

    A window of 20 s has steps of half a second: a rush of tasks is told from the same number spread evenly. The last of
    them is no shorter than the window, so that nothing of it is missed. About 120.
    """
    steps = max(1, min(FINE_BINS, ceil(window_seconds / FINEST_SECONDS)))
    found = [_rounded(window_seconds * (number + 1) / steps) for number in range(steps - 1)]
    found.append(_rounded(window_seconds, up=True))
    while found[-1] < outlook_seconds:
        last = found[-1]
        near = last < NEAR_SECONDS
        wider = last + NEAR_STEP_SECONDS if near else min(last * COARSE_FACTOR, last + WIDEST_SECONDS)
        found.append(_rounded(min(wider, outlook_seconds)))
    return tuple(found)


def _rounded(seconds: float, *, up: bool = False) -> float:
    """Keep six digits: the horizon goes to the scanner as text and comes back as a label, which has no more."""
    digits = 5 - floor(log10(seconds))
    near = round(seconds, digits)
    return near if near >= seconds or not up else round(near + 10.0**-digits, digits)
