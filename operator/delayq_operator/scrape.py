"""Reads scanners' and workers' metrics from their pods, all queues side by side, and never holds up reconciliation.

What could not be read is not zero: it is unknown, and the last reading counts for a while (news.py). Pods run an image
that a tenant chose and answer what they like: whatever that is, other queues are read. Not here: HTTP (exposition.py),
what a reading leads to (autoscaler.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table
from delayq.contract.queue import MOST_SHARDS
from delayq.scaling import horizons

from delayq_operator import crew
from delayq_operator.backlog import Reading, backlog
from delayq_operator.exposition import Client, Question
from delayq_operator.news import News

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.aims import Aims
    from delayq_operator.autoscaler import Autoscaler
    from delayq_operator.backlog import Backlog
    from delayq_operator.inventory import Inventory
    from delayq_operator.names import Key
    from delayq_operator.objects import Sample
    from delayq_operator.pod import Pod
    from delayq_operator.work import Work

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 5.0
"""Between two readings of a queue that nobody scales by them, and at most."""
NEWCOMERS_SECONDS: Final = 0.5
WORKERS_SECONDS: Final = 1.0
MOST_SECONDS: Final = 4.0  # for the scanners of a queue
FEW_SHARDS: Final = 4
AT_ONCE: Final = 512  # queues of few shards: an answer may take a quarter of a MiB while it is read
LARGE_AT_ONCE: Final = 12  # others: it may take 14
WORKERS_AT_ONCE: Final = 256
SPEAKERS: Final = ("scanner", "purge")
OF_A_WORKER: Final = Question(crew.NEEDED, shards=1)


@dataclass(slots=True)
class Said:
    """What those scanners said that answered."""

    reading: Reading
    leader: str = ""
    """The first that led a shard."""


class Scraper:
    """Reads all queues, and keeps the last reading of each."""

    def __init__(self, inventory: Inventory, aims: Aims, autoscaler: Autoscaler, work: Work) -> None:
        """Mark a queue in `work` whenever a reading of it says something new."""
        self._queues, self._pods, self._work = inventory.queues, inventory.pods, work
        self._aims, self.autoscaler = aims, autoscaler
        self._news: dict[Key, News] = {}
        self._followed: set[Key] = set()
        self._looked_at: dict[Key, float] = {}
        self._places, self._large = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(LARGE_AT_ONCE)
        self._worker_places = asyncio.Semaphore(WORKERS_AT_ONCE)
        self._client: Client | None = None

    def backlog(self, key: Key) -> Backlog | None:
        """Return the last reading, while it is fresh."""
        news = self._news.get(key)
        return news.fresh(time.time()) if news else None

    def complaint(self, key: Key) -> str:
        """Why the last reading failed; empty when it worked."""
        news = self._news.get(key)
        return news.complaint if news else ""

    def erased_shards(self, key: Key) -> int:
        """How many shards the purge Job of a deleted queue said it has erased."""
        news = self._news.get(key)
        return news.erased if news else 0

    def forget(self, key: Key) -> None:
        """Drop what was read of a queue."""
        self._news.pop(key, None)
        self._looked_at.pop(key, None)

    async def run(self) -> None:
        """Read for ever, each queue at its own pace; one that takes longer holds up no other."""
        async with Client() as client, asyncio.TaskGroup() as group:
            self._client = client
            while True:
                for key in self._queues.keys():  # noqa: SIM118 -- a method, and a copy
                    if key not in self._followed:
                        self._followed.add(key)
                        group.create_task(self._follow(client, key))
                await asyncio.sleep(NEWCOMERS_SECONDS)

    async def _follow(self, client: Client, key: Key) -> None:
        await asyncio.sleep(random.uniform(0, self._pace(key)))
        while self._queues.uid(key):
            started = time.monotonic()
            try:
                await self._read(client, key)
            except Exception:  # a bug must not stop the other queues
                log.exception("scrape_broke", extra={"fields": {"queue": str(key)}})
            taken = time.monotonic() - started
            await asyncio.sleep(max(0.0, self._pace(key) * random.uniform(0.9, 1.0) - taken))
        self._followed.discard(key)

    def _pace(self, key: Key) -> float:
        policy = self._aims.of(key).policy
        return PERIOD_SECONDS if policy is None else min(policy.period_seconds, PERIOD_SECONDS)

    async def _read(self, client: Client, key: Key) -> None:
        aim, pods = self._aims.of(key), self._speakers(key)
        lead = self.autoscaler.crew(key).lead.seconds if aim.policy else None
        asked = _horizons(aim.policy.window(lead)) if aim.policy else ()
        said, _ = await asyncio.gather(
            self._scanners(client, pods, Question(horizons=asked, shards=aim.shards)),
            self._workers(client, key) if aim.policy else asyncio.sleep(0),
        )
        if not self._queues.uid(key):
            return  # it went meanwhile
        if isinstance(said, Said):
            self._take(key, said.reading, said.leader)
        elif pods:
            self._complain(key, said)
        else:
            self._expire(key)
        self._look(key, said.reading if isinstance(said, Said) else None, asked)

    async def _scanners(self, client: Client, pods: Iterable[Pod], question: Question) -> Said | str:
        async with self._places if question.shards <= FEW_SHARDS else self._large:
            return await _said(client, pods, question)

    async def _workers(self, client: Client, key: Key) -> None:
        """Ask those workers whose turn it is."""
        known = self.autoscaler.crew(key)
        pods = known.to_ask(self.autoscaler.workers(key), time.time())
        for pod, answer in zip(pods, await self._each(client, pods), strict=True):
            if answer is not None:
                known.take(pod, answer)

    async def busy(self, pods: list[Pod]) -> dict[str, int]:
        """Ask workers how many tasks they run now; who does not answer soon is left out."""
        if self._client is None:
            return {}
        answers = zip(pods, await self._each(self._client, pods), strict=True)
        said = {pod.name: crew.busy(answer) for pod, answer in answers if answer is not None}
        return {name: number for name, number in said.items() if number is not None}

    async def _each(self, client: Client, pods: Iterable[Pod]) -> list[list[Sample] | None]:
        """Ask workers, side by side."""

        async def ask(pod: Pod) -> list[Sample] | None:
            with suppress(TimeoutError):
                async with self._worker_places, asyncio.timeout(WORKERS_SECONDS):
                    answer = await client.ask(pod, OF_A_WORKER)
                    return None if isinstance(answer, str) else answer
            return None

        return await asyncio.gather(*map(ask, pods))

    def _look(self, key: Key, reading: Reading | None, asked: tuple[float, ...]) -> None:
        """Have the number of workers decided, no more often than the spec says."""
        policy, now = self._aims.of(key).policy, time.time()
        if policy is not None and not 0 <= now - self._looked_at.get(key, 0.0) < policy.period_seconds * 0.8:
            self._looked_at[key] = now
            self.autoscaler.look(key, reading, asked, now)
        elif policy is None:
            self.autoscaler.rest(key, now)

    def _speakers(self, key: Key) -> list[Pod]:
        """Whom to ask, in this order: the purge Job, who led last, who is ready."""
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
        made, news = backlog(reading, time.time()), self._news.setdefault(key, News())
        news.leader = leader or news.leader
        erased = min(MOST_SHARDS, reading.total(table.ERASED_SHARDS))
        self._wake(
            key, news.take(made, erased, self._aims.of(key).lateness_seconds if made.due else math.inf)
        )

    def _complain(self, key: Key, why: str) -> None:
        """Keep why nobody could be read."""
        self._wake(key, self._news.setdefault(key, News()).complain(why, time.time()))

    def _expire(self, key: Key) -> None:
        """Tell that nobody knows any more, once the last reading of a queue without scanners is old."""
        if key in self._news:
            self._wake(key, self._news[key].expire(time.time()))

    def _wake(self, key: Key, wait_seconds: float | None) -> None:
        if wait_seconds is None:
            return
        if wait_seconds > 0:
            self._work.mark_in(key, wait_seconds)
        else:
            self._work.mark(key)


@lru_cache(1024)
def _horizons(window_seconds: float) -> tuple[float, ...]:
    """Return what to ask for; most windows are the same all the time."""
    return horizons(window_seconds)


async def _said(client: Client, pods: Iterable[Pod], question: Question) -> Said | str:
    """Ask one scanner after the other until every shard was told of: mostly, the first leads them all."""
    said, complaints, end = Said(Reading()), list[str](), time.monotonic() + MOST_SECONDS
    answered = False
    for pod in pods:
        answer = await client.ask(pod, question)
        if isinstance(answer, str):
            complaints.append(answer)
        else:
            answered = True
            if said.reading.take(answer):
                said.leader = said.leader or pod.name
        if said.reading.whole or time.monotonic() > end:
            break
    return said if answered else "".join(complaints[:1])
