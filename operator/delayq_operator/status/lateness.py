"""How late tasks began in the last minutes, by what workers count. Pure, but for whom to wake.

Workers run an image that a tenant chose: one that tells nothing counts for nothing. Not here: tasks that still wait
(backlog.py), HTTP (worker_poller.py), what the condition says (scaling_conditions.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats
from delayq_operator.status.view import WINDOW_SECONDS, Begun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work import Work
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 10.0
PART_SECONDS: Final = 5.0
"""What is counted within so long of each other leaves the window together."""


class Lateness:
    """The workers of one queue."""

    def __init__(self, allowed_seconds: float, since: float) -> None:
        """`allowed_seconds` is the objective. What workers older than `since` counted before is of long ago."""
        self.allowed_seconds, self._since = allowed_seconds, since
        self._asked_at: dict[str, float] = {}
        self._counted: dict[str, Begun] = {}
        self._parts: deque[tuple[float, Begun]] = deque()
        self.told = False
        """Whether a reconciliation was last woken because the objective was missed."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Whom to ask now; those that are gone are forgotten."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod)}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._counted = {name: each for name, each in self._counted.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, lambda _pod: AGAIN_SECONDS, now)

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Take note of a worker's histogram: what it counted since it was last asked."""
        found = counted(samples, self.allowed_seconds)
        if found is None:
            return
        before = self._counted.get(pod.name, found if pod.created_at < self._since else Begun())
        self._counted[pod.name] = found
        if found.tasks < before.tasks:  # its container started anew
            before = Begun()
        more = Begun(found.tasks - before.tasks, max(0.0, found.late - before.late))
        if not more.tasks:
            return
        if self._parts and now - self._parts[-1][0] < PART_SECONDS:
            at, part = self._parts.pop()
            self._parts.append((at, part + more))
        else:
            self._parts.append((now, more))

    def seen(self, now: float) -> Begun:
        """Sum up the window."""
        while self._parts and not 0 <= now - self._parts[0][0] < WINDOW_SECONDS:
            self._parts.popleft()
        return sum((part for _, part in self._parts), Begun())


def counted(samples: Iterable[Sample], allowed_seconds: float) -> Begun | None:
    """Return how many tasks a histogram counts, and how many of them were later; between two bounds in proportion."""
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
    return Begun(tasks, min(tasks, max(0.0, tasks - in_time)))


def _bound(labels: Mapping[str, str]) -> float:
    """Return the upper bound of a bucket; of the last, a bound above all objectives."""
    try:
        return float(labels["le"])
    except (LookupError, ValueError):
        return -1.0


class Latenesses:
    """Those of all queues."""

    def __init__(self, aims: ScalingConfigs, work: Work) -> None:
        """Mark a queue in `work` when its objective is missed, or met again."""
        self._aims, self._work = aims, work
        self._since = time.time()
        self._of: dict[Key, Lateness] = {}

    def watch(self, key: Key) -> Lateness | None:
        """Return what is known of the workers of a queue; None when its spec has no objective."""
        allowed = self._aims.of(key).lateness_seconds
        known = self._of.get(key)
        if allowed == math.inf:
            self.forget(key)
            return None
        # Another objective counts other tasks as late, and what workers counted before it is of long ago.
        if known is None or known.allowed_seconds != allowed:
            since = self._since if known is None else time.time()
            known = self._of[key] = Lateness(allowed, since)
        return known

    def seen(self, key: Key) -> Begun:
        """Return how many tasks of a queue began in the window, and how many of them late."""
        known = self._of.get(key)
        return known.seen(time.time()) if known else Begun()

    def tell(self, key: Key) -> None:
        """Ask for a reconciliation when the objective is missed, or met again."""
        known = self._of.get(key)
        if known is None:
            return
        missed = self.seen(key).missed(self._aims.of(key).percentile)
        if missed != known.told:
            known.told = missed
            self._work.mark(key)

    def forget(self, key: Key) -> None:
        """Drop what is known of a queue."""
        self._of.pop(key, None)
