"""Reads the metrics of scanner pods, all queues concurrently. Reconciliation never waits for it.

A failed read means unknown, not zero: the last reading stays valid for a while (backlog_cache.py). Pods run images that
tenants choose and may return anything; this must not affect other queues. Not here: HTTP (exposition.py), workers
(worker_poller.py), the decisions that follow from a reading (autoscaler.py).
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table
from delayq.contract.queue import MOST_SHARDS
from delayq.scaling import horizons

from delayq_operator.base.limiter import Limiter
from delayq_operator.polling.poller import Poller
from delayq_operator.scaling.suspension import restored
from delayq_operator.scrape.backlog import Reading, backlog
from delayq_operator.scrape.backlog_cache import BacklogCache
from delayq_operator.scrape.exposition import TOO_MUCH, Question
from delayq_operator.scrape.worker_stats import reachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.names import Key
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scaling.workers import Workers
    from delayq_operator.scrape.backlog import Backlog, SuspendCommand
    from delayq_operator.scrape.exposition import Client

PERIOD_SECONDS: Final = 5.0
"""Period of a queue that is not autoscaled, and the longest period."""
MOST_SECONDS: Final = 4.0  # for the scanners of a queue, including the wait for a slot
PLACE_SECONDS: Final = 2.0
FEW_SHARDS: Final = 4
AT_ONCE: Final = (512, 128)  # queues of few shards, and of a namespace: an answer may take a quarter of a MiB
LARGE_AT_ONCE: Final = (12, 4)  # others: it may take 14
REPORTING: Final = ("scanner", "erase")


class ScannerPoller:
    """Reads all queues, and keeps the last reading of each."""

    def __init__(
        self,
        inventory: Inventory,
        configs: ScalingConfigs,
        autoscaler: Autoscaler,
        *,
        workers: Workers,
        work: WorkQueue,
    ) -> None:
        """Enqueue a queue in `work` when a reading of it has changed."""
        self._queues, self._pods, self._work = inventory.queues, inventory.pods, work
        self._configs, self.autoscaler = configs, autoscaler
        self.workers = workers
        self._caches: dict[Key, BacklogCache] = {}
        self._poller = Poller(self._queues, self._visit)
        self._places, self._large = Limiter(*AT_ONCE), Limiter(*LARGE_AT_ONCE)

    def backlog(self, key: Key) -> Backlog | None:
        """Return the last reading, while it is fresh."""
        return self._known(key).fresh(time.time())

    def read_error(self, key: Key) -> str:
        """Why the last reading failed; empty when it worked."""
        return self._known(key).read_error

    def command(self, key: Key) -> SuspendCommand | None:
        """Return the `delayq suspend` that was last known to be in effect.

        Before the first reading, it is that of the status: else a restart of the operator would end a drain.
        """
        cache, queue = self._caches.get(key), self._queues.get(key)
        if cache is None and queue is not None:
            return restored(queue.status.get("conditions", ()))
        return None if cache is None else cache.command

    def erased_shards(self, key: Key) -> int:
        """Return how many shards the erase Job of a deleted queue reports as erased."""
        return self._known(key).erased

    def _known(self, key: Key) -> BacklogCache:
        return self._caches.get(key) or BacklogCache()

    def forget(self, key: Key) -> None:
        self.workers.forget(key)
        self._caches.pop(key, None)

    async def run(self) -> None:
        """Read until cancelled, each queue with its own period."""
        await self._poller.run()

    async def _visit(self, client: Client, key: Key) -> float:
        await self._read(client, key)
        policy = self._configs.of(key).policy
        return PERIOD_SECONDS if policy is None else min(policy.period_seconds, PERIOD_SECONDS)

    async def _read(self, client: Client, key: Key) -> None:
        asked, kinds_seconds = self._asked(key)
        shards = max(self._configs.of(key).shards, self._known(key).shards)
        question = Question(horizons=asked, kinds_seconds=kinds_seconds, shards=shards)
        reading = await self._scanners(client, key, question)
        if not self._queues.uid(key):
            return  # it was deleted meanwhile
        cache = self._caches.setdefault(key, BacklogCache(command=self.command(key)))
        wait_seconds = self._keep(key, cache, reading)
        if wait_seconds is not None:
            self._work.enqueue_in(key, wait_seconds)
        self._evaluate(key, cache, reading if reading.answered else None, asked)

    def _asked(self, key: Key) -> tuple[tuple[float, ...], float]:
        """Return the horizons that a decision needs, if maxReplicas workers start together.

        And the window in which kinds matter, seconds; 0 if their handler times do not differ.
        """
        policy = self._configs.of(key).policy
        if policy is None:
            return (), 0.0
        stats = self.workers.stats(key)
        window = policy.window(stats.lead.of(policy.max_replicas))
        return _horizons(window), window if stats.kinds.seconds else 0.0

    async def _scanners(self, client: Client, key: Key, question: Question) -> Reading:
        pods = self._pods_to_scrape(key)
        if not pods:
            return Reading()
        places = self._places if question.shards <= FEW_SHARDS else self._large
        until = time.monotonic() + MOST_SECONDS
        try:
            async with places.place(key.namespace, PLACE_SECONDS):
                return await _scrape(client, pods, question, until)
        except TimeoutError:
            return Reading(error="the operator was busy reading other queues")

    def _pods_to_scrape(self, key: Key) -> list[Pod]:
        """Return the pods to scrape, in this order: the erase Job, the last leader, ready pods, others."""
        leader = self._known(key).leader
        found = [pod for pod in self._pods.of(key) if pod.component in REPORTING and reachable(pod)]
        return sorted(
            found, key=lambda pod: (pod.component == "scanner", pod.name != leader, not pod.ready, pod.name)
        )

    def _keep(self, key: Key, cache: BacklogCache, reading: Reading) -> float | None:
        """Store a reading. Return how long a reconciliation can wait; None if none is needed."""
        now, cache.shards = time.time(), _shards(reading, cache.shards)
        if not reading.answered:
            return cache.fail(reading.error, now)
        cache.leader = reading.leader or cache.leader
        config = self._configs.of(key)
        made = backlog(reading, now, config.references, cache.command)
        erased = min(MOST_SHARDS, reading.total(table.ERASED_SHARDS))
        return cache.take(made, erased, config.lateness_seconds if made.due else math.inf)

    def _evaluate(
        self, key: Key, cache: BacklogCache, reading: Reading | None, asked: tuple[float, ...]
    ) -> None:
        """Let the autoscaler decide, at most once per period."""
        config, now = self._configs.of(key), time.time()
        policy = config.policy
        # More workers would not run anything while the queue is suspended, or without their guard.
        stopped = cache.command is not None or (config.guarded and self.workers.seen(key).guard_down)
        if policy is None or stopped:
            cache.evaluated_at = 0.0
            self.autoscaler.suspend(key, now)
        elif not 0 <= now - cache.evaluated_at < policy.period_seconds * 0.8:
            cache.evaluated_at = now
            self.autoscaler.evaluate(key, reading, asked, now)


def _shards(reading: Reading, before: int) -> int:
    """Return the shards to expect next time: while their number shrinks, scanners report more than the spec has."""
    if reading.answered:
        return reading.shard_map.shards_in_use if reading.shard_map else 0
    return MOST_SHARDS if reading.error.endswith(TOO_MUCH) else before


_horizons = lru_cache(1024)(horizons)  # most windows are the same all the time


async def _scrape(client: Client, pods: Iterable[Pod], question: Question, until: float) -> Reading:
    """Scrape one scanner after the other until every shard is reported: usually the first leads them all."""
    reading = Reading()
    for pod in pods:
        answer = await client.ask(pod, question)
        if isinstance(answer, str):
            reading.error = reading.error or answer
        elif reading.take(answer):
            reading.leader = reading.leader or pod.name
        if reading.whole or time.monotonic() > until:
            break
    return reading
