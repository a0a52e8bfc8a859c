"""Reads the metrics of scanner pods, all queues concurrently. Reconciliation never waits for it.

A failed read means unknown, not zero: the last reading stays valid for a while (backlog_cache.py). Pods run images that
tenants choose and may return anything; this must not affect other queues. Not here: HTTP (exposition.py), workers
(worker_poller.py), the decisions that follow from a reading (autoscaler.py).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table
from delayq.contract.queue import MOST_SHARDS
from delayq.scaling import horizons

from delayq_operator.base.limiter import Limiter
from delayq_operator.polling.poller import Poller
from delayq_operator.scrape.backlog import Reading, backlog
from delayq_operator.scrape.backlog_cache import BacklogCache
from delayq_operator.scrape.exposition import TOO_MUCH, Client, Question

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.scaling import Policy

    from delayq_operator.base.names import Key
    from delayq_operator.base.work import Work
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod
    from delayq_operator.scaling.autoscaler import Autoscaler
    from delayq_operator.scaling.scaling_config import ScalingConfigs
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.scrape.worker_stats import WorkerStats
    from delayq_operator.status.guards import Guards
    from delayq_operator.status.lateness import Latenesses

PERIOD_SECONDS: Final = 5.0
"""Between two readings of a queue that is not autoscaled, and at most."""
MOST_SECONDS: Final = 4.0  # for the scanners of a queue, and for a place before
PLACE_SECONDS: Final = 2.0
FEW_SHARDS: Final = 4
AT_ONCE: Final = (512, 128)  # queues of few shards, and of a namespace: an answer may take a quarter of a MiB
LARGE_AT_ONCE: Final = (12, 4)  # others: it may take 14
SPEAKERS: Final = ("scanner", "erase")


@dataclass(slots=True)
class Said:
    """What those scanners said that answered."""

    reading: Reading
    leader: str = ""
    """The first that led a shard."""


class ScannerPoller:
    """Reads all queues, and keeps the last reading of each."""

    def __init__(
        self,
        inventory: Inventory,
        aims: ScalingConfigs,
        autoscaler: Autoscaler,
        *,
        guards: Guards,
        lateness: Latenesses,
        work: Work,
    ) -> None:
        """Mark a queue in `work` whenever a reading of it says something new."""
        self._queues, self._pods, self._work = inventory.queues, inventory.pods, work
        self._aims, self.autoscaler, self.guards, self.lateness = aims, autoscaler, guards, lateness
        self._news: dict[Key, BacklogCache] = {}
        self._looked_at: dict[Key, float] = {}
        self._covers: dict[Key, int] = {}
        self._places, self._large = Limiter(*AT_ONCE), Limiter(*LARGE_AT_ONCE)

    def backlog(self, key: Key) -> Backlog | None:
        """Return the last reading, while it is fresh."""
        news = self._news.get(key)
        return news.fresh(time.time()) if news else None

    def complaint(self, key: Key) -> str:
        """Why the last reading failed; empty when it worked."""
        news = self._news.get(key)
        return news.complaint if news else ""

    def erased_shards(self, key: Key) -> int:
        """How many shards the erase Job of a deleted queue said it has erased."""
        news = self._news.get(key)
        return news.erased if news else 0

    def forget(self, key: Key) -> None:
        """Drop what was read of a queue."""
        self.guards.forget(key)
        self.lateness.forget(key)
        self._news.pop(key, None)
        self._looked_at.pop(key, None)
        self._covers.pop(key, None)

    async def run(self) -> None:
        """Read for ever, each queue at its own pace; one that takes longer holds up no other."""
        async with Client() as client:

            async def visit(key: Key) -> float:
                await self._read(client, key)
                return self._pace(key)

            await Poller(self._queues, visit).run()

    def _pace(self, key: Key) -> float:
        policy = self._aims.of(key).policy
        return PERIOD_SECONDS if policy is None else min(policy.period_seconds, PERIOD_SECONDS)

    async def _read(self, client: Client, key: Key) -> None:
        aim, pods = self._aims.of(key), self._speakers(key)
        asked = _asked(aim.policy, self.autoscaler.crew(key)) if aim.policy else ()
        question = Question(horizons=asked, shards=max(aim.shards, self._covers.get(key, 0)))
        said = await self._scanners(client, key, pods, question) if pods else ""
        if not self._queues.uid(key):
            return  # it went meanwhile
        self._covers[key] = _covers(said, self._covers.get(key, 0))
        if isinstance(said, Said):
            self._take(key, said.reading, said.leader)
        elif pods:
            self._complain(key, said)
        else:
            self._expire(key)
        self._look(key, said.reading if isinstance(said, Said) else None, asked)

    async def _scanners(
        self, client: Client, key: Key, pods: Iterable[Pod], question: Question
    ) -> Said | str:
        places = self._places if question.shards <= FEW_SHARDS else self._large
        until = time.monotonic() + MOST_SECONDS
        try:
            async with places.place(key.namespace, PLACE_SECONDS):
                return await _said(client, pods, question, until)
        except TimeoutError:
            return "the operator was busy reading other queues"

    def _look(self, key: Key, reading: Reading | None, asked: tuple[float, ...]) -> None:
        """Have the number of workers decided, no more often than the spec says."""
        policy, now = self._aims.of(key).policy, time.time()
        if policy is not None and self.guards.down(key):
            self.autoscaler.rest(key, now)  # they would not run anything either
        elif (
            policy is not None and not 0 <= now - self._looked_at.get(key, 0.0) < policy.period_seconds * 0.8
        ):
            self._looked_at[key] = now
            self.autoscaler.look(key, reading, asked, now)
        elif policy is None:
            self._looked_at.pop(key, None)
            self.autoscaler.rest(key, now)

    def _speakers(self, key: Key) -> list[Pod]:
        """Whom to ask, in this order: the erase Job, who led last, who is ready."""
        news = self._news.get(key)
        leader = news.leader if news else ""
        found = [
            pod
            for pod in self._pods.of(key)
            if pod.component in SPEAKERS and pod.address and not pod.leaving | pod.failed
        ]
        return sorted(
            found, key=lambda pod: (pod.component == "scanner", pod.name != leader, not pod.ready, pod.name)
        )

    def _take(self, key: Key, reading: Reading, leader: str = "") -> None:
        """Keep a reading."""
        made, news = backlog(reading, time.time()), self._news.setdefault(key, BacklogCache())
        news.leader = leader or news.leader
        erased = min(MOST_SHARDS, reading.total(table.ERASED_SHARDS))
        self._wake(
            key, news.take(made, erased, self._aims.of(key).lateness_seconds if made.due else math.inf)
        )

    def _complain(self, key: Key, why: str) -> None:
        """Store why no scanner could be read."""
        self._wake(key, self._news.setdefault(key, BacklogCache()).complain(why, time.time()))

    def _expire(self, key: Key) -> None:
        """Report the backlog as unknown once the last reading of a queue without scanners is old."""
        if key in self._news:
            self._wake(key, self._news[key].expire(time.time()))

    def _wake(self, key: Key, wait_seconds: float | None) -> None:
        if wait_seconds is None:
            return
        if wait_seconds > 0:
            self._work.mark_in(key, wait_seconds)
        else:
            self._work.mark(key)


def _covers(said: Said | str, before: int) -> int:
    """For how many shards to be prepared next time: while they become fewer, more are told of than the spec says."""
    if isinstance(said, Said):
        return 0 if said.reading.shard_map is None else said.reading.shard_map.covers
    return MOST_SHARDS if said.endswith(TOO_MUCH) else before


def _asked(policy: Policy, crew: WorkerStats) -> tuple[float, ...]:
    """Return the horizons that a decision needs: as many workers as are allowed may have to start together."""
    return _horizons(policy.window(crew.lead.of(policy.max_replicas)))


@lru_cache(1024)
def _horizons(window_seconds: float) -> tuple[float, ...]:
    """Return what to ask for; most windows are the same all the time."""
    return horizons(window_seconds)


async def _said(client: Client, pods: Iterable[Pod], question: Question, until: float) -> Said | str:
    """Ask one scanner after the other until every shard was told of: mostly, the first leads them all."""
    said, complaints, answered = Said(Reading()), list[str](), False
    for pod in pods:
        answer = await client.ask(pod, question)
        if isinstance(answer, str):
            complaints.append(answer)
        else:
            answered = True
            if said.reading.take(answer):
                said.leader = said.leader or pod.name
        if said.reading.whole or time.monotonic() > until:
            break
    return said if answered else "".join(complaints[:1])
