"""Reads the scanners' metrics from their pods, all queues side by side, without ever holding up reconciliation.

What could not be read is not zero: it is unknown, and the last reading counts for FRESH_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final

import aiohttp
from delayq.contract import metrics as table

from delayq_operator import metrics, names
from delayq_operator.backlog import Reading, backlog

if TYPE_CHECKING:
    from delayq_operator.backlog import Backlog
    from delayq_operator.inventory import Inventory
    from delayq_operator.names import Key
    from delayq_operator.objects import Sample
    from delayq_operator.pod import Pod
    from delayq_operator.work import Work

log = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 20.0
AT_ONCE: Final = 64
SPEAKERS: Final = ("scanner", "purge")
LARGEST_BYTES: Final = 4 << 20  # 256 shards need about 1 MiB


class Scraper:
    """The last reading of each queue."""

    def __init__(self, inventory: Inventory, work: Work) -> None:
        """Mark a queue in `work` whenever a reading of it says something new."""
        self._queues, self._pods, self._work = inventory.queues, inventory.pods, work
        self._last: dict[Key, Backlog] = {}
        self._complaints: dict[Key, str] = {}
        self._erased: dict[Key, int] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def backlog(self, key: Key) -> Backlog | None:
        """Return the last reading, while it is fresh."""
        last = self._last.get(key)
        return last if last is not None and time.time() - last.read_at < FRESH_SECONDS else None

    def complaint(self, key: Key) -> str:
        """Why the last reading failed; empty when it worked."""
        return self._complaints.get(key, "")

    def erased_shards(self, key: Key) -> int:
        """How many shards the purge Job of a deleted queue said it has erased."""
        return self._erased.get(key, 0)

    def forget(self, key: Key) -> None:
        """Drop what was read of a queue."""
        self._last.pop(key, None)
        self._complaints.pop(key, None)
        self._erased.pop(key, None)

    async def run(self) -> None:
        """Read for ever, each queue once a period, spread over all of it."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
            while True:
                pause = asyncio.create_task(asyncio.sleep(PERIOD_SECONDS * random.uniform(0.9, 1.1)))
                async with asyncio.TaskGroup() as group:
                    for key in self._queues.keys():  # noqa: SIM118 -- a method, and a copy
                        if scanners := self._scanners(key):
                            group.create_task(self._read(session, key, scanners))
                        else:
                            self._expire(key)
                await pause

    def _expire(self, key: Key) -> None:
        """Tell that nobody knows any more, once the last reading of a queue without scanners is old."""
        if key in self._last and self.backlog(key) is None:
            del self._last[key]
            self._complaints.pop(key, None)
            self._work.mark(key)

    def _scanners(self, key: Key) -> list[Pod]:
        pods = self._pods.of(key)
        return [
            pod for pod in pods if pod.component in SPEAKERS and pod.address and not pod.leaving | pod.failed
        ]

    async def _read(self, session: aiohttp.ClientSession, key: Key, scanners: list[Pod]) -> None:
        await asyncio.sleep(random.uniform(0, PERIOD_SECONDS / 2))
        answers = await asyncio.gather(*(self._exposition(session, pod) for pod in scanners))
        read = [answer for answer in answers if not isinstance(answer, str)]
        complaints = [answer for answer in answers if isinstance(answer, str)]
        if self._take(key, Reading(read)) if read else self._complain(key, complaints[0]):
            self._work.mark(key)

    def _take(self, key: Key, reading: Reading) -> bool:
        """Keep a reading; whether it says something new."""
        now, before, erased_before = backlog(reading, time.time()), self.backlog(key), self.erased_shards(key)
        self._last[key] = now
        self._erased[key] = max(erased_before, reading.total(table.ERASED_SHARDS))
        complained = self._complaints.pop(key, None) is not None
        return complained or now.is_news(before) or self._erased[key] != erased_before

    def _complain(self, key: Key, why: str) -> bool:
        """Keep a complaint; whether it is a new one, or the last reading is too old to be believed without it."""
        new = self._complaints.get(key) != why or (key in self._last and self.backlog(key) is None)
        self._complaints[key] = why
        if self.backlog(key) is None:
            self._last.pop(key, None)
        return new

    async def _exposition(self, session: aiohttp.ClientSession, pod: Pod) -> list[Sample] | str:
        """Return what one scanner exports, or what is wrong."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"http://{host}:{names.METRICS_PORT}/metrics"
        try:
            async with self._places, session.get(url) as response:
                response.raise_for_status()
                found = list(metrics.samples(await _text(response)))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            metrics.SCRAPE_ERRORS.inc()
            why = f"{pod.name}: {str(error) or type(error).__name__}"
            log.info("scrape_failed", extra={"fields": {"pod": pod.name, "url": url, "error": why}})
            return why
        metrics.SCRAPES.inc()
        return found


async def _text(response: aiohttp.ClientResponse) -> str:
    """Read the whole answer; read(n) of the client would be content with what has arrived."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes of metrics")
    return body.decode()
