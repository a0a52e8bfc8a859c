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
        """Mark a queue in `work` after each reading of it; whether that is worth a write is decided there."""
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
                await pause

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
        if read:
            reading = Reading(read)
            self._last[key] = backlog(reading, time.time())
            self._erased[key] = max(self.erased_shards(key), reading.total(table.ERASED_SHARDS))
            self._complaints.pop(key, None)
        else:
            self._complaints[key] = complaints[0]
        self._work.mark(key)

    async def _exposition(self, session: aiohttp.ClientSession, pod: Pod) -> list[Sample] | str:
        """Return what one scanner exports, or what is wrong."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"http://{host}:{names.METRICS_PORT}/metrics"
        try:
            async with self._places, session.get(url) as response:
                response.raise_for_status()
                text = (await response.content.read(LARGEST_BYTES)).decode()
            found = list(metrics.samples(text))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            metrics.SCRAPE_ERRORS.inc()
            why = f"{pod.name}: {str(error) or type(error).__name__}"
            log.info("scrape_failed", extra={"fields": {"pod": pod.name, "url": url, "error": why}})
            return why
        metrics.SCRAPES.inc()
        return found
