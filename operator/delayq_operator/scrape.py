"""Reads the scanners' metrics from their pods, all queues side by side, without ever holding up reconciliation.

What could not be read is not zero: it is unknown, and the last reading counts for a while (news.py). A scanner runs an
image that a tenant chose and answers what it likes: whatever that is, other queues are read. Not here: HTTP
(exposition.py).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import SpecError, parse
from delayq.contract import metrics as table
from delayq.contract.queue import MOST_SHARDS

from delayq_operator.backlog import Reading, backlog
from delayq_operator.exposition import Client
from delayq_operator.news import News

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.backlog import Backlog
    from delayq_operator.inventory import Inventory
    from delayq_operator.names import Key
    from delayq_operator.pod import Pod
    from delayq_operator.work import Work

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 5.0
AT_ONCE: Final = 128  # queues; an answer may take a MiB or two while it is read
SPEAKERS: Final = ("scanner", "purge")


@dataclass(slots=True)
class Said:
    """What those scanners said that answered."""

    reading: Reading
    leader: str = ""
    """The first that led a shard."""


class Scraper:
    """The last reading of each queue."""

    def __init__(self, inventory: Inventory, work: Work) -> None:
        """Mark a queue in `work` whenever a reading of it says something new."""
        self._queues, self._pods, self._work = inventory.queues, inventory.pods, work
        self._news: dict[Key, News] = {}
        self._busy: set[Key] = set()
        self._places = asyncio.Semaphore(AT_ONCE)

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

    async def run(self) -> None:
        """Read for ever, each queue once a period; one that takes longer holds up no other."""
        async with Client() as client, asyncio.TaskGroup() as group:
            while True:
                for key in self._queues.keys():  # noqa: SIM118 -- a method, and a copy
                    if key not in self._busy:
                        self._busy.add(key)
                        group.create_task(self._visit(client, key))
                await asyncio.sleep(PERIOD_SECONDS * random.uniform(0.9, 1.1))

    async def _visit(self, client: Client, key: Key) -> None:
        try:
            await asyncio.sleep(random.uniform(0, PERIOD_SECONDS / 2))
            await self._read(client, key)
        except Exception:  # a bug must not stop the other queues
            log.exception("scrape_broke", extra={"fields": {"queue": str(key)}})
        finally:
            self._busy.discard(key)

    async def _read(self, client: Client, key: Key) -> None:
        pods = self._speakers(key)
        async with self._places:
            said = await _said(client, pods)
        if not self._queues.uid(key):
            return  # it went meanwhile
        if isinstance(said, Said):
            self._take(key, said.reading, said.leader)
        elif pods:
            self._complain(key, said)
        else:
            self._expire(key)

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
        self._wake(key, news.take(made, erased, self._allowed_seconds(key) if made.due else math.inf))

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

    def _allowed_seconds(self, key: Key) -> float:
        """How late tasks may start; no bound when nobody can tell."""
        resource = self._queues.get(key)
        try:
            return parse(resource.document).spec.objective.lateness_seconds if resource else math.inf
        except SpecError:
            return math.inf


async def _said(client: Client, pods: Iterable[Pod]) -> Said | str:
    """Ask one scanner after the other until every shard was told of: mostly, the first leads them all."""
    said, complaints, end = Said(Reading()), list[str](), time.monotonic() + PERIOD_SECONDS
    answered = False
    for pod in pods:
        answer = await client.ask(pod)
        if isinstance(answer, str):
            complaints.append(answer)
        else:
            answered = True
            if said.reading.take(answer):
                said.leader = said.leader or pod.name
        if said.reading.whole or time.monotonic() > end:
            break
    return said if answered else "".join(complaints[:1])
