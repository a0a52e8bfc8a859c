"""Lateness of the tasks that started in the last minutes, from the workers' histograms. Pure, but for the work queue.

Workers run images that tenants choose: a worker that reports nothing is ignored. Not here: tasks that still wait
(backlog.py), HTTP (worker_poller.py), the text of the condition (scaling_conditions.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats
from delayq_operator.status.view import WINDOW_SECONDS, StartedTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 10.0
PART_SECONDS: Final = 5.0
"""Resolution of the sliding window."""


class Lateness:
    """The workers of one queue."""

    def __init__(self, allowed_seconds: float, since: float) -> None:
        """`allowed_seconds` is the objective. Earlier counts of workers created before `since` are ignored."""
        self.allowed_seconds, self._since = allowed_seconds, since
        self._asked_at: dict[str, float] = {}
        self._counted: dict[str, StartedTasks] = {}
        self._parts: deque[tuple[float, StartedTasks]] = deque()
        self.reported = False
        """Whether the last enqueue was because the objective was missed."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Return the workers to scrape now; drop those that are gone."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod)}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._counted = {name: each for name, each in self._counted.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, lambda _pod: AGAIN_SECONDS, now)

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
        if not more.tasks:
            return
        if self._parts and now - self._parts[-1][0] < PART_SECONDS:
            at, part = self._parts.pop()
            self._parts.append((at, part + more))
        else:
            self._parts.append((now, more))

    def seen(self, now: float) -> StartedTasks:
        """Sum up the window."""
        while self._parts and not 0 <= now - self._parts[0][0] < WINDOW_SECONDS:
            self._parts.popleft()
        return sum((part for _, part in self._parts), StartedTasks())


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


class Latenesses:
    """The lateness of all queues."""

    def __init__(self, configs: ScalingConfigs, work: WorkQueue) -> None:
        """Enqueue a queue in `work` when its objective is missed, or met again."""
        self._configs, self._work = configs, work
        self._since = time.time()
        self._of: dict[Key, Lateness] = {}

    def watch(self, key: Key) -> Lateness | None:
        """Return the lateness of a queue; None if its spec has no objective."""
        allowed = self._configs.of(key).lateness_seconds
        known = self._of.get(key)
        if allowed == math.inf:
            self.forget(key)
            return None
        # A changed objective counts other tasks as late: start again, and ignore earlier counts.
        if known is None or known.allowed_seconds != allowed:
            since = self._since if known is None else time.time()
            known = self._of[key] = Lateness(allowed, since)
        return known

    def seen(self, key: Key) -> StartedTasks:
        """Return how many tasks of a queue started in the window, and how many of them late."""
        known = self._of.get(key)
        return known.seen(time.time()) if known else StartedTasks()

    def enqueue_on_change(self, key: Key) -> None:
        """Enqueue the queue when its objective is missed, or met again."""
        known = self._of.get(key)
        if known is None:
            return
        missed = self.seen(key).missed(self._configs.of(key).percentile)
        if missed != known.reported:
            known.reported = missed
            self._work.enqueue(key)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)
