"""The files of HTTP handlers that the workers of a queue wait for, as they report. Pure, but for the work queue.

The operator does not read Secrets of HTTP handlers, so it cannot know which keys they have. Workers run images that
tenants choose: only files that the spec names count. Not here: HTTP (worker_poller.py), the text of the condition
(readiness.py), files of the recovery check, which scanners report with the backlog (backlog.py).
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 6.0


class Awaited:
    """The workers of one queue."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._asked_at: dict[str, float] = {}
        self._said: dict[str, tuple[float, frozenset[str]]] = {}
        self.reported: tuple[str, ...] = ()
        """The files at the last enqueue."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Return the workers to scrape now: those that are not ready; drop the others."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod) and not pod.ready}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._said = {name: each for name, each in self._said.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, lambda _pod: AGAIN_SECONDS, now)

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Store the report of a worker."""
        files = (labels.get("file", "") for name, labels, _ in samples if name == table.AWAITED_FILES.name)
        self._said[pod.name] = now, frozenset(files)

    def seen(self, named: frozenset[str], now: float) -> tuple[str, ...]:
        """Return what workers wait for of the files that the spec names."""
        fresh = [files for at, files in self._said.values() if 0 <= now - at < FRESH_SECONDS]
        return tuple(sorted(named.intersection(chain.from_iterable(fresh))))


class AwaitedFiles:
    """The workers of all queues that have HTTP handlers with files."""

    def __init__(self, configs: ScalingConfigs, work: WorkQueue) -> None:
        """Enqueue a queue in `work` when its workers wait for other files."""
        self._configs, self._work = configs, work
        self._of: dict[Key, Awaited] = {}

    def watch(self, key: Key) -> Awaited | None:
        """Return the reports of the workers of a queue; None if its spec names no such file."""
        if not self._configs.of(key).awaited_files:
            self.forget(key)
            return None
        return self._of.setdefault(key, Awaited())

    def seen(self, key: Key) -> tuple[str, ...]:
        """Return the files that workers of a queue wait for: `key token of Secret shop`."""
        known = self._of.get(key)
        return known.seen(self._configs.of(key).awaited_files, time.time()) if known else ()

    def enqueue_on_change(self, key: Key) -> None:
        """Enqueue the queue when its workers wait for other files."""
        known, now = self._of.get(key), self.seen(key)
        if known is not None and now != known.reported:
            known.reported = now
            self._work.enqueue(key)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)
