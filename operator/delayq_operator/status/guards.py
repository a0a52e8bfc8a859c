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
from delayq_operator.status.view import Guarding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work import Work
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.scaling_config import ScalingConfigs

AGAIN_SECONDS: Final = 6.0
SEVERAL: Final = 2  # workers without the guard, until more are taken for useless
SOON_SECONDS: Final = 0.9  # one that has just said no, or nothing yet; visits are a second apart


@dataclass(slots=True)
class _Worker:
    """What one worker said."""

    said_at: float = 0.0
    able: bool | None = None
    """None: it has not told yet."""
    doubted: bool = False
    """Whether it has just said no, and not twice: every worker does before its first look at the guard."""

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
        self.told = Guarding()
        """What a reconciliation was last woken for."""

    def to_ask(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Whom to ask now; those that are gone are forgotten."""
        here = {pod.name: pod for pod in pods if worker_stats.reachable(pod)}
        self._asked_at = {name: at for name, at in self._asked_at.items() if name in here}
        self._workers = {name: each for name, each in self._workers.items() if name in here}
        return worker_stats.turns(here.values(), self._asked_at, self._pause_seconds, now)

    def _pause_seconds(self, pod: Pod) -> float:
        worker = self._workers.get(pod.name, _Worker())
        return SOON_SECONDS if worker.doubted or (worker.able is None and not pod.ready) else AGAIN_SECONDS

    def take(self, pod: Pod, samples: Iterable[Sample], now: float) -> None:
        """Take note of what a worker says."""
        value = worker_stats.said(samples).get(table.WORKER_GUARD_UP.name)
        if value is not None:
            self._workers.setdefault(pod.name, _Worker()).take(value >= 1, now)

    def seen(self, now: float) -> Guarding:
        """Count those who told of late."""
        told = [each.able for each in self._workers.values() if 0 <= now - each.said_at < FRESH_SECONDS]
        return Guarding(able=told.count(True), unable=told.count(False))


class Guards:
    """The workers of all queues that have a guard."""

    def __init__(self, aims: ScalingConfigs, work: Work) -> None:
        """Mark a queue in `work` when there is something to tell."""
        self._aims, self._work = aims, work
        self._of: dict[Key, Watch] = {}

    def watch(self, key: Key) -> Watch | None:
        """Return what is known of the workers of a queue; None when it has no guard."""
        if not self._aims.of(key).guarded:
            self.forget(key)
            return None
        return self._of.setdefault(key, Watch())

    def seen(self, key: Key) -> Guarding:
        """Count the workers of a queue that can use its guard, and those that cannot."""
        watch = self._of.get(key)
        return watch.seen(time.time()) if watch else Guarding()

    def down(self, key: Key) -> bool:
        """Whether none of several can: more would not help. One alone may be where no other would be."""
        seen = self.seen(key)
        return seen.down and seen.unable >= SEVERAL

    def tell(self, key: Key) -> None:
        """Ask for a reconciliation: at once for another verdict, now and then for other numbers."""
        watch, now = self._of.get(key), self.seen(key)
        if watch is None or now == watch.told:
            return
        if now.verdict != watch.told.verdict:
            self._work.mark(key)
        else:
            self._work.mark_in(key, NUMBERS_SECONDS)
        watch.told = now

    def forget(self, key: Key) -> None:
        """Drop what is known of a queue."""
        self._of.pop(key, None)
