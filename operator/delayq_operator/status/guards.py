"""Whether the workers of a queue report that their guard is reachable. Pure, except that it enqueues reconciliations.

Workers run images that tenants choose: a worker that reports nothing is ignored. Not here: HTTP (worker_poller.py), the
text of the condition (conditions.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS, NUMBERS_SECONDS
from delayq_operator.status.view import GuardCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 6.0
SEVERAL: Final = 2  # workers without the guard: from this number on, more workers would not help
SOON_SECONDS: Final = 0.9  # for a worker without a confirmed report; polls are a second apart


@dataclass(slots=True)
class _Worker:
    """The reports of one worker."""

    said_at: float = 0.0
    able: bool | None = None
    """None: no confirmed report yet."""
    doubted: bool = False
    """Whether it reported "unable" once only: every worker does until its first check of the guard."""

    def take(self, able: bool, now: float) -> None:  # noqa: FBT001 -- what it says
        self.said_at = now
        sure = able or self.doubted or self.able is False
        self.doubted = not sure
        if sure:
            self.able = able


class Watch:
    """The workers of one queue."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._asked_at: dict[str, float] = {}
        self._workers: dict[str, _Worker] = {}
        self.reported = GuardCounts()
        """The counts at the last enqueue."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Return the workers to scrape now; drop those that are gone."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod)}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._workers = {name: each for name, each in self._workers.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, self._pause_seconds, now)

    def _pause_seconds(self, pod: Pod) -> float:
        worker = self._workers.get(pod.name, _Worker())
        return SOON_SECONDS if worker.doubted or (worker.able is None and not pod.ready) else AGAIN_SECONDS

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Store the report of a worker."""
        value = worker_stats.valid_values(samples).get(table.WORKER_GUARD_UP.name)
        if value is not None:
            self._workers.setdefault(pod.name, _Worker()).take(value >= 1, now)

    def seen(self, now: float) -> GuardCounts:
        """Count the workers whose report is fresh."""
        fresh = [each.able for each in self._workers.values() if 0 <= now - each.said_at < FRESH_SECONDS]
        return GuardCounts(able=fresh.count(True), unable=fresh.count(False))


class Guards:
    """The workers of all queues that have a guard."""

    def __init__(self, configs: ScalingConfigs, work: WorkQueue) -> None:
        """Enqueue a queue in `work` when its counts change."""
        self._configs, self._work = configs, work
        self._of: dict[Key, Watch] = {}

    def watch(self, key: Key) -> Watch | None:
        """Return the reports of the workers of a queue; None if it has no guard."""
        if not self._configs.of(key).guarded:
            self.forget(key)
            return None
        return self._of.setdefault(key, Watch())

    def seen(self, key: Key) -> GuardCounts:
        """Count the workers of a queue that can use its guard, and those that cannot."""
        watch = self._of.get(key)
        return watch.seen(time.time()) if watch else GuardCounts()

    def down(self, key: Key) -> bool:
        """Whether at least SEVERAL workers report and none can use the guard. One alone may be on a faulty node."""
        seen = self.seen(key)
        return seen.down and seen.unable >= SEVERAL

    def enqueue_on_change(self, key: Key) -> None:
        """Enqueue the queue: at once if the verdict changed, rate-limited if only numbers did."""
        watch, now = self._of.get(key), self.seen(key)
        if watch is None or now == watch.reported:
            return
        if now.verdict != watch.reported.verdict:
            self._work.enqueue(key)
        else:
            self._work.enqueue_in(key, NUMBERS_SECONDS)
        watch.reported = now

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)
