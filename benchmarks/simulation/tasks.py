"""The tasks of a simulation: when each falls due, since when it is known, how long its handler takes. Pure data.

Seconds from the start of the simulation, in arrays: a million tasks are 24 MB and walk by in a few seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TASKS: Final = 5_000_000
"""About half a minute of simulation, and a quarter of a gigabyte."""


class Arrival(NamedTuple):
    """Tasks that fall due at one time."""

    due: float
    handler_seconds: float
    scheduled: float = 0.0
    """Since when they are in the queue; 0 or less: from the start."""
    tasks: int = 1


class TooMany(ValueError):
    """More tasks than a simulation takes."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks in the order in which they are claimed: by due time, then as they came."""

    due: array[float]
    """Never before it is scheduled: a task that is stored late falls due when it is stored."""
    scheduled: array[float]
    handler_seconds: array[float]

    @classmethod
    def of(cls, arrivals: Iterable[Arrival]) -> Self:
        """Put them in order; TooMany says how many are allowed."""
        rows, total = [], 0
        for each in arrivals:
            rows.append(each)
            total += each.tasks
            if total > MOST_TASKS:
                raise TooMany(f"expected at most {MOST_TASKS:,} tasks, got more")
        rows.sort(key=_due)
        due, scheduled, handler = array("d"), array("d"), array("d")
        for row in rows:
            due.extend([_due(row)] * row.tasks)
            scheduled.extend([row.scheduled] * row.tasks)
            handler.extend([row.handler_seconds] * row.tasks)
        return cls(due, scheduled, handler)

    def __len__(self) -> int:
        return len(self.due)

    @property
    def known_from_start(self) -> bool:
        """Whether nothing is scheduled later on."""
        return not len(self) or max(self.scheduled) <= 0

    @property
    def work_seconds(self) -> float:
        """Time that all handlers take together."""
        return sum(self.handler_seconds)

    @property
    def mean_handler_seconds(self) -> float | None:
        """The mean; None without a task."""
        return self.work_seconds / len(self) if len(self) else None

    def until(self, seconds: float) -> Self:
        """Leave out what falls due later."""
        kept = bisect_right(self.due, seconds)
        return type(self)(self.due[:kept], self.scheduled[:kept], self.handler_seconds[:kept])


def _due(arrival: Arrival) -> float:
    return max(arrival.due, arrival.scheduled, 0.0)
