"""Polls each DelayQueue periodically and concurrently: a slow or failing one does not delay others."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from delayq_operator.scrape.exposition import Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq_operator.base.names import Key
    from delayq_operator.cache.queues import Queues

log = logging.getLogger(__name__)

NEWCOMERS_SECONDS: Final = 0.5
SPREAD_SECONDS: Final = 2.0  # jitter of the first visits
BROKEN_SECONDS: Final = 5.0


class Poller:
    """The visits to all queues."""

    def __init__(self, queues: Queues, visit: Callable[[Client, Key], Awaitable[float]]) -> None:
        """`visit` returns after how many seconds since it began the next one is due."""
        self._queues, self._visit = queues, visit
        self._followed: set[Key] = set()
        self.client: Client | None = None
        """None before run()."""

    async def run(self) -> None:
        """Visit until cancelled, each queue with its own period."""
        async with aclosing(Client()) as self.client, asyncio.TaskGroup() as group:
            while True:
                for key in self._queues.keys():  # noqa: SIM118 -- a method, and a copy
                    if key not in self._followed:
                        self._followed.add(key)
                        group.create_task(self._follow(self.client, key))
                await asyncio.sleep(NEWCOMERS_SECONDS)

    async def _follow(self, client: Client, key: Key) -> None:
        await asyncio.sleep(random.uniform(0, SPREAD_SECONDS))
        while self._queues.uid(key):
            started = time.monotonic()
            try:
                pause = await self._visit(client, key)
            except Exception:  # a bug must not stop the other queues
                pause = BROKEN_SECONDS
                log.exception("scrape_crashed", extra={"fields": {"queue": str(key)}})
            taken = time.monotonic() - started
            await asyncio.sleep(max(0.0, pause * random.uniform(0.9, 1.0) - taken))
        self._followed.discard(key)
