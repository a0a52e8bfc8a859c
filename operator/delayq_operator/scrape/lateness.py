"""Lateness of the tasks that started in the last minutes, from the workers' histograms. Pure.

Workers run images that tenants choose: a worker that reports nothing is ignored. Not here: tasks that still wait
(backlog.py), the text of the condition (scaling_conditions.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.pod import Pod

PART_SECONDS: Final = 5.0
"""Resolution of the sliding window."""
WINDOW_SECONDS: Final = 300.0
"""Window of the objective, as in the alert DelayQueueLate: long enough for a percentile."""


@dataclass(frozen=True, slots=True)
class StartedTasks:
    """Tasks that started within some time."""

    tasks: float = 0.0
    late: float = 0.0
    """Of them, those that started later than the objective allows."""

    def __add__(self, other: StartedTasks) -> StartedTasks:
        """Sum up."""
        return StartedTasks(self.tasks + other.tasks, self.late + other.late)

    def missed(self, percentile: float) -> bool:
        """Whether more of them were late than the objective's percentile allows."""
        return self.late > round(self.tasks * (100 - percentile) / 100, 6)


class Lateness:
    """The workers of one queue."""

    def __init__(self, allowed_seconds: float, since: float) -> None:
        """`allowed_seconds` is the objective. Earlier counts of workers created before `since` are ignored."""
        self.allowed_seconds, self._since = allowed_seconds, since
        self._counted: dict[str, StartedTasks] = {}
        self._parts: dict[int, StartedTasks] = {}  # by PART_SECONDS since 1970

    def forget(self, but: Collection[str]) -> None:
        """Drop the counts of all workers but these; the window stays."""
        self._counted = {name: each for name, each in self._counted.items() if name in but}

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Add what a worker's histogram counted since its last scrape."""
        found = counted(samples, self.allowed_seconds)
        if found is None:
            return
        before = self._counted.get(pod.name, found if pod.created_at < self._since else StartedTasks())
        self._counted[pod.name] = found
        if found.tasks < before.tasks:  # its container restarted
            before = StartedTasks()
        more = StartedTasks(found.tasks - before.tasks, max(0.0, found.late - before.late))
        part = int(now // PART_SECONDS)
        self._parts[part] = self._parts.get(part, StartedTasks()) + more

    def seen(self, now: float) -> StartedTasks:
        """Sum up the window."""
        part = int(now // PART_SECONDS)
        here = range(part - int(WINDOW_SECONDS / PART_SECONDS) + 1, part + 1)
        self._parts = {each: tasks for each, tasks in self._parts.items() if each in here}
        return sum(self._parts.values(), StartedTasks())


def counted(samples: Iterable[Sample], allowed_seconds: float) -> StartedTasks | None:
    """Return the tasks of a histogram and how many were later; interpolates within a bucket. None if there is none."""
    buckets: dict[float, float] = {}
    for name, labels, value in samples:
        if name == f"{table.WORKER_DUE_TO_CLAIMED.name}_bucket" and 0 <= value <= worker_stats.MOST:
            le = _bound(labels)
            buckets[le] = buckets.get(le, 0.0) + value
    tasks = buckets.get(math.inf)
    if tasks is None:
        return None
    below, in_time = 0.0, 0.0
    for le in sorted(buckets):
        if le >= allowed_seconds:
            share = 1.0 if le == math.inf else (allowed_seconds - below) / (le - below)
            in_time += (buckets[le] - in_time) * share
            break
        below, in_time = le, buckets[le]
    return StartedTasks(tasks, min(tasks, max(0.0, tasks - in_time)))


def _bound(labels: Mapping[str, str]) -> float:
    """Return the upper bound of a bucket; -1 if it is not a number."""
    try:
        return float(labels["le"])
    except (LookupError, ValueError):
        return -1.0
