"""Scrapes workers of all queues concurrently: start, running tasks, lateness and guard.

Decisions do not wait for it: they use the last WorkerStats. A worker that hangs occupies a slot for a second; each
namespace has its share of slots. Not here: which worker is due for a scrape (workers.py).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq_operator.base.limiter import Limiter
from delayq_operator.polling.poller import Poller
from delayq_operator.scaling.workers import MOST_AT_ONCE
from delayq_operator.scrape import worker_stats
from delayq_operator.scrape.exposition import Question

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.names import Key
    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.pod import Pod
    from delayq_operator.cache.queues import Queues
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scaling.workers import Workers
    from delayq_operator.scrape.exposition import Client

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0  # while only lateness is needed
POLL_SECONDS: Final = 1.0
FULL_SECONDS: Final = 0.25  # while more workers are due than one poll can scrape
WORKERS_SECONDS: Final = 1.0
"""For the response of a worker, including the wait for a slot."""
AT_ONCE: Final = (256, 64)  # workers, and of a namespace
OF_A_WORKER: Final = Question(worker_stats.NEEDED, shards=1)


class WorkerPoller:
    """Scrapes the workers of all queues."""

    def __init__(self, queues: Queues, configs: ScalingConfigs, workers: Workers) -> None:
        """Pass each response to `workers`."""
        self._configs, self._workers = configs, workers
        self._places = Limiter(*AT_ONCE)
        self._poller = Poller(queues, self._visit)

    async def run(self) -> None:
        await self._poller.run()

    async def _visit(self, client: Client, key: Key) -> float:
        pods = self._workers.due(key)
        answers = await self._each(client, key.namespace, pods)
        now_there = filter(worker_stats.reachable, self._workers.pods(key))
        there = {(pod.name, pod.uid, pod.address): pod for pod in now_there}
        for asked, answer in zip(pods, answers, strict=True):
            pod = there.get((asked.name, asked.uid, asked.address))
            if pod is not None and answer is not None:
                self._take(key, pod, answer)
        self._workers.enqueue_on_change(key)
        if len(pods) >= MOST_AT_ONCE:
            return FULL_SECONDS
        config = self._configs.of(key)
        return IDLE_SECONDS if config.policy is None and not config.guarded else POLL_SECONDS

    def _take(self, key: Key, pod: Pod, answer: list[Sample]) -> None:
        try:
            self._workers.take(key, pod, answer)
        except Exception:  # an invalid response must not affect other workers
            log.exception("scrape_crashed", extra={"fields": {"queue": str(key), "pod": pod.name}})

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
