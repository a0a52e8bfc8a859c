"""Scrapes workers of all queues concurrently: start, running tasks, lateness and guard.

Decisions do not wait for it: they use the last WorkerStats. A worker that hangs occupies a slot for a second; each
namespace has its share of slots. Not here: which worker is due for a scrape (worker_stats.py, guards.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq_operator.base.limiter import Limiter
from delayq_operator.polling.poller import Poller
from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.exposition import Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scrape.exposition import Client
    from delayq_operator.scrape.worker_stats import WorkerStats
    from delayq_operator.status.guards import Guards, Watch
    from delayq_operator.status.lateness import Lateness, Latenesses
    from delayq_operator.status.missing import Missing, MissingReferences

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0  # while only lateness is needed
FULL_SECONDS: Final = 0.25  # while more workers are due than one poll can scrape
WORKERS_SECONDS: Final = 1.0
"""For the response of a worker, including the wait for a slot."""
AT_ONCE: Final = (256, 64)  # workers, and of a namespace
OF_A_WORKER: Final = Question(worker_stats.NEEDED, shards=1)


class WorkerPoller:
    """Scrapes the workers of all queues."""

    def __init__(
        self,
        inventory: Inventory,
        configs: ScalingConfigs,
        autoscaler: Autoscaler,
        *,
        guards: Guards,
        lateness: Latenesses,
        missing: MissingReferences,
    ) -> None:
        """Feed the worker statistics of `autoscaler`, and `guards`, `lateness` and `missing`."""
        self._configs, self._autoscaler = configs, autoscaler
        self._guards, self._lateness, self._missing = guards, lateness, missing
        self._places = Limiter(*AT_ONCE)
        self._poller = Poller(inventory.queues, self._visit)

    async def run(self) -> None:
        await self._poller.run()

    async def _visit(self, client: Client, key: Key) -> float:
        known = None if self._configs.of(key).policy is None else self._autoscaler.stats(key)
        guarded = self._guards.watch(key)
        watches = (known, guarded, self._lateness.watch(key), self._missing.watch(key))
        consumers = [each for each in watches if each is not None]
        if not consumers:
            return IDLE_SECONDS
        workers, now = self._autoscaler.workers(key), time.time()
        pods = list({pod.name: pod for each in consumers for pod in each.to_ask(workers, now)}.values())
        answers = await self._each(client, key.namespace, pods)
        now_there = filter(worker_stats.reachable, self._autoscaler.workers(key))
        there = {(pod.name, pod.uid, pod.address): pod for pod in now_there}
        for asked, answer in zip(pods, answers, strict=True):
            pod = there.get((asked.name, asked.uid, asked.address))
            if pod is not None and answer is not None:
                _take(consumers, pod, answer, key)
        self._guards.enqueue_on_change(key)
        self._lateness.enqueue_on_change(key)
        self._missing.enqueue_on_change(key)
        if len(pods) >= worker_stats.MOST_AT_ONCE:
            return FULL_SECONDS
        return IDLE_SECONDS if known is None and guarded is None else worker_stats.SOON_SECONDS

    async def busy(self, key: Key, pods: list[Pod]) -> dict[str, int]:
        """Return how many tasks each worker runs now; a worker that does not answer in time is left out."""
        if self._poller.client is None:
            return {}
        answers = zip(pods, await self._each(self._poller.client, key.namespace, pods), strict=True)
        said = {pod.name: worker_stats.busy(answer) for pod, answer in answers if answer is not None}
        return {name: number for name, number in said.items() if number is not None}

    async def _each(self, client: Client, namespace: str, pods: Iterable[Pod]) -> list[list[Sample] | None]:
        async def ask(pod: Pod) -> list[Sample] | None:
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(WORKERS_SECONDS),
                    self._places.place(namespace, WORKERS_SECONDS),
                ):
                    answer = await client.ask(pod, OF_A_WORKER)
                    return None if isinstance(answer, str) else answer
            return None

        return await asyncio.gather(*map(ask, pods))


def _take(
    consumers: Iterable[WorkerStats | Lateness | Watch | Missing],
    pod: Pod,
    answer: Sequence[Sample],
    key: Key,
) -> None:
    try:
        for each in consumers:
            each.take(pod, answer, time.time())
    except Exception:  # an invalid response must not affect other workers
        log.exception("scrape_crashed", extra={"fields": {"queue": str(key), "pod": pod.name}})
