"""Sample a run periodically: counts from Redis, lateness from workers' metrics, process states from their output."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp

from delayq.errors import DelayQError
from delayq.local import listening, panel
from delayq.local.measures import Window, histograms
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.client.aio import Client
    from delayq.local.display import Plain
    from delayq.local.plan import Plan, Served
    from delayq.local.relay import Relay

SCRAPE_SECONDS = 2.0
EVERY_SECONDS, PLAIN_EVERY_SECONDS = 1.0, 5.0  # on a terminal; to files and pipes


class Watch:
    """A service for loop.Loop: each step refreshes the panel."""

    name, blocks = "status", False

    def __init__(
        self,
        plan: Plan,
        redis: Sequence[str],
        relays: dict[str, Relay],
        *,
        clients: Sequence[Client],
        display: Plain,
    ) -> None:
        """`redis`: the panel's lines about Redis; `relays`: by process name; `clients`: of the queues of the plan."""
        self._plan, self._redis, self._relays = plan, redis, relays
        self._clients, self._display = clients, display
        self._windows = [Window() for _ in plan.queues]
        self._host = listening.scraped(plan.host)
        self._session: aiohttp.ClientSession | None = None
        self._seconds = plan.status_seconds or (EVERY_SECONDS if display.live else PLAIN_EVERY_SECONDS)
        self.alarm = Alarm()

    async def step(self) -> float:
        """Take a sample and show the panel."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SCRAPE_SECONDS))
        found = await asyncio.gather(*map(self._lines, self._plan.queues, self._clients, self._windows))
        lines = [f"redis    {each}" for each in self._redis]
        names = [each.queue.queue for each in self._plan.queues]
        width = max(map(len, names)) + 2
        for name, those in zip(names, found, strict=True):
            lines += [f"{name:<{width}}{line}" for line in those] if names[1:] else those
        self._display.show(lines)
        return self._seconds

    async def close(self) -> None:
        """Disconnect."""
        if self._session is not None:
            await self._session.close()

    async def _metrics(self, relay: Relay) -> str:
        """Return the metrics of a process, empty if it does not answer; the keeper reports processes that are down."""
        if relay.port is None or self._session is None:
            return ""
        with suppress(aiohttp.ClientError, OSError):
            async with self._session.get(f"http://{self._host}:{relay.port}/metrics") as answer:
                return await answer.text()
        return ""

    async def _lines(self, served: Served, client: Client, window: Window) -> list[str]:
        queue, names = served.queue, self._plan.worker_names(served)
        for name in names:
            if text := await self._metrics(self._relays[name]):
                window.add(name, time.monotonic(), histograms(text, queue.queue))
        status, shard_map = await _status(client, window), client.shard_map  # refreshed by _status
        # The document may have another number, which takes effect only after resharding.
        shards = shard_map.shards_in_use if shard_map.epoch else queue.spec.shards
        [helpers] = [each for each in self._plan.helpers if served in each.queues]
        scanners = [self._relays[name] for name in helpers.scanner_names]
        workers = [self._relays[name] for name in names]
        return [
            f"scanner  {panel.scanner_line(scanners, shards, shard_map, queue=helpers.label(served))}",
            f"worker   {panel.worker_line(workers, queue)}",
            *([f"guard    {panel.guard_line(workers)}"] if queue.spec.guard is not None else []),
            *([f"api      {panel.api_line(self._api(served))}"] if self._plan.api is not False else []),
            f"         {status}",
        ]

    def _api(self, served: Served) -> Relay | None:
        names = self._plan.api_names
        return self._relays[names[self._plan.queues.index(served)]] if names else None


async def _status(client: Client, window: Window) -> str:
    try:
        counts = await client.counts()
    except DelayQError as error:
        return str(error)
    return panel.status_line(counts, window.lateness_ms(time.monotonic()))
