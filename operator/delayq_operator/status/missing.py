"""The keys of Secrets and ConfigMaps that workers wait for, as they report. Pure, but for the work queue.

The operator reads no Secrets, so it cannot know which keys they have. Workers run images that tenants choose: only
keys that the spec names count. Not here: HTTP (worker_poller.py), the text of the condition (conditions.py), what
scanners report with the backlog (backlog.py).
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.backlog import missing_references
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from delayq.contract.files import Reference

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 6.0


class Missing:
    """The workers of one queue."""

    def __init__(self) -> None:
        """Start without a reading."""
        self._asked_at: dict[str, float] = {}
        self._said: dict[str, tuple[float, list[Mapping[str, str]]]] = {}
        self.reported: tuple[Reference, ...] = ()
        """The keys at the last enqueue."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Return the workers to scrape now: those that are not ready; drop the others."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod) and not pod.ready}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._said = {name: each for name, each in self._said.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, lambda _pod: AGAIN_SECONDS, now)

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Store the report of a worker."""
        self._said[pod.name] = now, [has for name, has, _ in samples if name == table.MISSING_REFERENCES.name]

    def seen(self, named: Collection[Reference], now: float) -> tuple[Reference, ...]:
        """Return what workers wait for of the keys that the spec names."""
        fresh = [labels for at, labels in self._said.values() if 0 <= now - at < FRESH_SECONDS]
        return missing_references(chain.from_iterable(fresh), named)


class MissingReferences:
    """The workers of all queues whose spec names a Secret or ConfigMap."""

    def __init__(self, configs: ScalingConfigs, work: WorkQueue) -> None:
        """Enqueue a queue in `work` when its workers wait for other keys."""
        self._configs, self._work = configs, work
        self._of: dict[Key, Missing] = {}

    def watch(self, key: Key) -> Missing | None:
        """Return the reports of the workers of a queue; None if its spec names no key."""
        if not self._configs.of(key).references:
            self.forget(key)
            return None
        return self._of.setdefault(key, Missing())

    def seen(self, key: Key) -> tuple[Reference, ...]:
        """Return the keys that workers of a queue wait for."""
        known = self._of.get(key)
        return known.seen(self._configs.of(key).references, time.time()) if known else ()

    def enqueue_on_change(self, key: Key) -> None:
        """Enqueue the queue when its workers wait for other keys."""
        known, now = self._of.get(key), self.seen(key)
        if known is not None and now != known.reported:
            known.reported = now
            self._work.enqueue(key)

    def forget(self, key: Key) -> None:
        """Drop the state of a queue."""
        self._of.pop(key, None)
