"""The workers of all queues: which to scrape, what they reported last, and what they teach.

Starting workers are scraped often, others rarely; if there are too many, those with the oldest scrape come first.
Not here: HTTP (worker_poller.py), what a report means (worker_reports.py, lateness.py, worker_stats.py).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq_operator.scrape.changes import Reported
from delayq_operator.scrape.lateness import Lateness
from delayq_operator.scrape.worker_reports import GuardCounts, Report, Seen, guard_counts, missing
from delayq_operator.scrape.worker_stats import WorkerStats, reachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfig, ScalingConfigs

SOON_SECONDS: Final = 1.0  # for one that starts
UNSURE_SECONDS: Final = 0.9  # for one whose guard is in doubt; polls are a second apart
AGAIN_SECONDS: Final = 6.0
RARELY_SECONDS: Final = 10.0  # while only lateness is needed
MOST_AT_ONCE: Final = 32


@dataclass(slots=True)
class _Queue:
    """The workers of one queue."""

    uid: str
    stats: WorkerStats
    lateness: Lateness
    pods: list[Pod] = field(default_factory=list)
    """All workers, as of the last visit."""
    asked_at: dict[str, float] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    reported: Reported = field(default_factory=lambda: Reported(_facts(Seen(), 100.0), (0, 0)))

    def forget(self, but: set[str]) -> None:
        """Drop what workers that are gone have reported."""
        for known in (self.asked_at, self.reports):
            for name in known.keys() - but:
                del known[name]
        self.lateness.forget(but)

    def pause_seconds(self, config: ScalingConfig, pod: Pod, now: float) -> float:
        """Return how long to wait between two scrapes of a worker."""
        report = self.reports.get(pod.name, Report())
        if config.guarded and (report.doubted or (report.able is None and not pod.ready)):
            return UNSURE_SECONDS
        if config.policy is not None and self.stats.starts(pod, now):
            return SOON_SECONDS
        if config.guarded or config.policy is not None or (config.references and not pod.ready):
            return AGAIN_SECONDS
        return RARELY_SECONDS if config.lateness_seconds < math.inf else math.inf


class Workers:
    """The workers of all queues."""

    def __init__(self, inventory: Inventory, configs: ScalingConfigs, work: WorkQueue) -> None:
        """Enqueue a queue in `work` when its workers report something else."""
        self._inventory, self._configs, self._work = inventory, configs, work
        self._since = time.time()
        self._of: dict[Key, _Queue] = {}

    def pods(self, key: Key) -> list[Pod]:
        """Return the worker pods of a queue."""
        return [pod for pod in self._inventory.pods.of(key) if pod.component == "worker"]

    def stats(self, key: Key) -> WorkerStats:
        """Return the statistics of a queue's workers."""
        return self._queue(key).stats

    def due(self, key: Key) -> list[Pod]:
        """Return the workers to scrape now, the oldest scrape first."""
        queue, config, now = self._queue(key), self._configs.of(key), time.time()
        queue.pods = self.pods(key)
        here = [pod for pod in queue.pods if reachable(pod)]
        queue.forget({pod.name for pod in here})

        def asked(pod: Pod) -> float:
            return queue.asked_at.get(pod.name, 0.0)

        due = [pod for pod in here if not 0 <= now - asked(pod) < queue.pause_seconds(config, pod, now)]
        due = sorted(due, key=asked)[:MOST_AT_ONCE]
        queue.asked_at.update(dict.fromkeys((pod.name for pod in due), now))
        return due

    def take(self, key: Key, pod: Pod, samples: Sequence[Sample]) -> None:
        """Add the samples of a worker."""
        queue, now = self._queue(key), time.time()
        queue.reports[pod.name] = queue.reports.get(pod.name, Report()).next(samples, now)
        queue.lateness.take(pod, samples, now)
        if self._configs.of(key).policy is not None:
            queue.stats.take(pod, samples, now, queue.pods)

    def seen(self, key: Key) -> Seen:
        """Return what the workers of a queue report."""
        queue, config, now = self._of.get(key), self._configs.of(key), time.time()
        if queue is None:
            return Seen()
        unready = [pod.name for pod in self.pods(key) if not pod.ready] if config.references else []
        waiting = [queue.reports[name] for name in unready if name in queue.reports]
        return Seen(
            guard=guard_counts(queue.reports.values(), now) if config.guarded else GuardCounts(),
            missing=missing(waiting, config.references, now),
            started=queue.lateness.seen(now),
        )

    def enqueue_on_change(self, key: Key) -> None:
        """Enqueue the queue: at once if the facts changed, rate-limited if only numbers did."""
        seen = self.seen(key)
        facts, numbers = _facts(seen, self._configs.of(key).percentile), (seen.guard.able, seen.guard.unable)
        wait_seconds = self._queue(key).reported.wait_seconds(facts, numbers, (), time.time())
        if wait_seconds is not None:
            self._work.enqueue_in(key, wait_seconds)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)

    def _queue(self, key: Key) -> _Queue:
        uid, allowed = self._inventory.queues.uid(key), self._configs.of(key).lateness_seconds
        known = self._of.get(key)
        if known is None or known.uid != uid:
            resource = self._inventory.queues.get(key)
            status = resource.status if resource else {}
            stats = WorkerStats(status.get("scaling") or {}, since=time.time())
            known = _Queue(uid=uid, stats=stats, lateness=Lateness(allowed, self._since))
            if resource is not None:
                self._of[key] = known
        # A changed objective counts other tasks as late: start again, and ignore earlier counts.
        if known.lateness.allowed_seconds != allowed:
            known.lateness = Lateness(allowed, time.time())
        return known


def _facts(seen: Seen, percentile: float) -> tuple[object, ...]:
    return seen.guard.verdict, seen.missing, seen.started.missed(percentile)
