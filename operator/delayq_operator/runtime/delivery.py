"""Brings the objects of the cluster into the caches: by kopf's events, and by a list of everything each minute."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import Denied

from delayq_operator import handlers
from delayq_operator.base import metrics
from delayq_operator.kube import kopf_engine
from delayq_operator.reconcile.lists import LABELLED, RETRY_SECONDS, UNLABELLED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from delayq.kube.objects import Kind

    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.reconcile.lists import Lists

log = logging.getLogger(__name__)

RELISTED_SECONDS: Final = 5.0
"""After kopf has listed, which follows a 410 or its own start: it reports no deletion from before."""
MISSED_SECONDS: Final = 0.25
"""After kopf has listed a version that is not known yet: of an object in a list it tells the version only."""
LONGEST_PAUSE_SECONDS: Final = 8.0
LIVED_SECONDS: Final = 60.0
"""A kopf that ends sooner makes the next pause longer."""


class Delivery:
    """Lists, and keeps kopf running."""

    def __init__(
        self,
        lists: Lists,
        inventory: Inventory,
        *,
        namespaces: Sequence[str],
        list_seconds: float,
        silence_seconds: float,
    ) -> None:
        """Events go to `inventory` in the event loop of run()."""
        self._lists, self._inventory, self._namespaces = lists, inventory, namespaces
        self._list_seconds, self._silence_seconds = list_seconds, silence_seconds
        self.synced = asyncio.Event()
        """Set once everything was listed."""
        self._memo = handlers.Memo(self._deliver, self._answered)
        self._loop = asyncio.get_running_loop()
        self._kopf: asyncio.Task[None] | None = None
        self._kinds: frozenset[Kind] = frozenset()
        self._begun_at, self._failures, self._beat_at, self._answered_at = 0.0, 0, 0.0, 0.0
        self._soon, self._list_at = asyncio.Event(), 0.0

    @property
    def kopf_seconds(self) -> float:
        """For how long the event loop of kopf has shown no sign of life; 0 while it does not run."""
        running = self._kopf is not None and not self._kopf.done()
        return time.monotonic() - self._beat_at if running else 0.0

    async def run(self) -> None:
        """List and watch until cancelled. Raises Denied if a right is missing."""
        self._answered()
        try:
            while True:
                self._list_at = time.monotonic() + self._list_seconds * random.uniform(0.9, 1)
                if await self._lists.step():
                    self.synced.set()
                    await self._keep_kopf()
                else:
                    self._list_at = time.monotonic() + RETRY_SECONDS
                metrics.WATCH_ANSWER_AGE.set(time.monotonic() - self._answered_at)
                await self._until_next()
        finally:
            await self._end_kopf()

    async def _until_next(self) -> None:
        while (pause := self._list_at - time.monotonic()) > 0:
            self._soon.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for would lose a cancellation
                    await self._soon.wait()

    def _list_in(self, seconds: float) -> None:
        self._list_at = min(self._list_at, time.monotonic() + seconds)
        self._soon.set()

    async def _keep_kopf(self) -> None:
        """Start kopf, or restart it if it has ended or must watch other kinds."""
        kinds = self._lists.watchable
        if self._kopf is not None and not self._kopf.done() and kinds == self._kinds:
            return
        await self._end_kopf(kinds)
        self._kinds, self._begun_at = kinds, time.monotonic()
        self._kopf = asyncio.create_task(self._watch(kinds), name="kopf")
        self._kopf.add_done_callback(self._stopped)

    async def _watch(self, kinds: frozenset[Kind]) -> None:
        self._beat()
        await kopf_engine.run(
            handlers.registry(kinds),
            self._memo,
            namespaces=self._namespaces,
            selectors={
                (kind.group, kind.version, kind.plural): LABELLED for kind in kinds.difference(UNLABELLED)
            },
            silence_seconds=self._silence_seconds,
            beat=self._beat,
        )

    async def _end_kopf(self, kinds: frozenset[Kind] = frozenset()) -> None:
        """End kopf. If it has ended by itself, pause; Denied if it lacks a right although it can list everything."""
        if self._kopf is None:
            return
        failed, task, self._kopf = self._kopf.done(), self._kopf, None
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        if not failed:
            return
        if error is not None and kopf_engine.forbidden(error) and kinds == self._kinds:
            raise Denied(kopf_engine.FORBIDDEN, "Forbidden", str(error.args[0]))
        lived = time.monotonic() - self._begun_at > LIVED_SECONDS
        self._failures = 0 if lived else self._failures + 1
        await asyncio.sleep(min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0**self._failures) * random.uniform(0.5, 1))

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.info("kopf_stopped", extra={"fields": {"error": repr(task.exception())}})
            self._list_in(0)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()

    def _answered(self) -> None:
        self._answered_at = time.monotonic()

    def _deliver(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """Take an event from the thread of kopf."""
        with suppress(RuntimeError):  # the process ends
            self._loop.call_soon_threadsafe(self._received, kind, event)

    def _received(self, kind: Kind, event: Mapping[str, Any]) -> None:
        if event["type"] is not None:
            self._inventory.take(kind, event)
        else:
            known = self._inventory.has(kind, event["object"])
            self._list_in(RELISTED_SECONDS if known else MISSED_SECONDS)
