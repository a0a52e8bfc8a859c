"""The work queue of DelayQueues to reconcile: each key waits at most once, and one worker at a time handles it.

Namespaces take turns: a tenant with many or slow queues delays its own only.

A key that is enqueued while a worker handles it is queued again afterwards: that run may have missed the change.
Not here: the reconciliation (reconcile.py).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import TYPE_CHECKING, Final

from delayq_operator.base import metrics
from delayq_operator.base.limiter import FairQueue
from delayq_operator.base.names import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FEWEST_WORKERS: Final = 2
FIRST_BACKOFF_SECONDS: Final = 0.2
SOON_SECONDS: Final = 3.0
"""Longest backoff while the API server is unavailable."""
LATER_SECONDS: Final = 60.0
"""Longest backoff after an error that needs manual work."""


class WorkQueue:
    """The keys that wait, those that workers handle, and those with a timer."""

    def __init__(self) -> None:
        self._queue = FairQueue[Key]()
        self._changed = asyncio.Event()
        self._workers = 0
        self._waiting: set[Key] = set()
        self._active: dict[Key, float] = {}  # start time; math.inf: not allowed yet
        self._enqueued_again: set[Key] = set()
        self._later: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[Key, tuple[float, int]] = {}  # longest backoff, and how often in a row

    def enqueue(self, key: Key) -> None:
        if key in self._later:
            self._later.pop(key)[1].cancel()
        if key in self._active:
            self._enqueued_again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._queue.put(key.namespace, key)
            self._changed.set()
        metrics.QUEUE_DEPTH.set(len(self._waiting))

    def enqueue_in(self, key: Key, seconds: float) -> None:
        """Enqueue the key after some seconds, unless it is enqueued before."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if key in self._later:
            earlier, timer = self._later[key]
            if earlier <= at:
                return
            timer.cancel()
        self._later[key] = (at, loop.call_at(at, self.enqueue, key))

    @property
    def longest_seconds(self) -> float:
        """Duration of the longest handler run in progress."""
        return max([0.0, *(time.monotonic() - started for started in self._active.values())])

    async def run(
        self, handle: Callable[[Key], Awaitable[float | None]], *, allowed: Callable[[], Awaitable[object]]
    ) -> None:
        """Handle keys one by one; `handle` returns the longest backoff before the next try, None if done.

        Each key waits until `allowed` returns; this wait does not count as a run.
        """
        self._workers += 1
        while True:
            key = await self._next()
            self._waiting.discard(key)
            metrics.QUEUE_DEPTH.set(len(self._waiting))
            self._active[key] = math.inf
            try:
                await allowed()
                self._active[key] = time.monotonic()
                longest = await handle(key)
            finally:
                del self._active[key]
                self._queue.give_back(key.namespace)
                self._changed.set()
            self._done(key, longest)
            await asyncio.sleep(0)  # keys without I/O must not delay the renewal of the Lease

    async def _next(self) -> Key:
        """Wait for the next key. Of three or more workers, one is reserved for other namespaces."""
        while (found := self._queue.take(max(FEWEST_WORKERS, self._workers - 1))) is None:
            self._changed.clear()
            await self._changed.wait()
        return found[1]

    def _done(self, key: Key, longest: float | None) -> None:
        again = key in self._enqueued_again
        self._enqueued_again.discard(key)
        if longest is None:
            self._failures.pop(key, None)
            if again:
                self.enqueue(key)
            return
        before, failures = self._failures.get(key, (longest, 0))
        # Failures of another kind, such as an outage before a rejection, do not count.
        failures = failures + 1 if before == longest else 1
        self._failures[key] = (longest, failures)
        if again:  # a change may have removed the cause
            longest = min(longest, SOON_SECONDS)
        self.enqueue_in(key, backoff_seconds(failures, longest, random.random()))


def backoff_seconds(failures: int, longest: float, chance: float) -> float:
    """Return how long to wait after so many failures in a row; `chance` in [0, 1) spreads keys over half of it."""
    pause = min(longest, FIRST_BACKOFF_SECONDS * 2.0 ** (min(failures, 20) - 1))
    return pause * (0.5 + chance / 2)
