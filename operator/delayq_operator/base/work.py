"""Which DelayQueues have to be reconciled: each at most once in line, and never by two workers at a time.

Namespaces take turns, whatever one of them has in line: a tenant with many queues, or slow ones, delays its own.

A key that is marked while it is being worked on goes back into the line afterwards: whatever happened since the work
began may not have been seen by it. Not here: what work is (reconcile.py).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import TYPE_CHECKING, Final

from delayq_operator.base import metrics
from delayq_operator.base.limiter import FairLine
from delayq_operator.base.names import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FEWEST_WORKERS: Final = 2
FIRST_BACKOFF_SECONDS: Final = 0.2
SOON_SECONDS: Final = 3.0
"""Longest pause while the API server is away: that it is back is noticed within this."""
LATER_SECONDS: Final = 60.0
"""Longest pause while something is refused that a person has to put right."""


class Work:
    """The keys in line, those in hand, and those to come back to."""

    def __init__(self) -> None:
        self._line = FairLine[Key]()
        self._changed = asyncio.Event()
        self._workers = 0
        self._waiting: set[Key] = set()
        self._in_hand: dict[Key, float] = {}  # since when it is worked on; math.inf: that is not allowed yet
        self._marked_again: set[Key] = set()
        self._later: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[Key, tuple[float, int]] = {}  # longest pause, and how often in a row it was that

    def mark(self, key: Key) -> None:
        if key in self._later:
            self._later.pop(key)[1].cancel()
        if key in self._in_hand:
            self._marked_again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._line.put(key.namespace, key)
            self._changed.set()
        metrics.QUEUE_DEPTH.set(len(self._waiting))

    def mark_in(self, key: Key, seconds: float) -> None:
        """Have the key worked on after some time at the latest."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if key in self._later:
            earlier, timer = self._later[key]
            if earlier <= at:
                return
            timer.cancel()
        self._later[key] = (at, loop.call_at(at, self.mark, key))

    @property
    def longest_seconds(self) -> float:
        """For how long the oldest key in hand has been worked on."""
        return max([0.0, *(time.monotonic() - begun for begun in self._in_hand.values())])

    async def run(
        self, handle: Callable[[Key], Awaitable[float | None]], *, allowed: Callable[[], Awaitable[object]]
    ) -> None:
        """Work on keys one by one, for ever; `handle` returns the longest pause before the next try, None if done.

        Each key waits until work is `allowed`; that is not yet work.
        """
        self._workers += 1
        while True:
            key = await self._next()
            self._waiting.discard(key)
            metrics.QUEUE_DEPTH.set(len(self._waiting))
            self._in_hand[key] = math.inf
            try:
                await allowed()
                self._in_hand[key] = time.monotonic()
                longest = await handle(key)
            finally:
                del self._in_hand[key]
                self._line.give_back(key.namespace)
                self._changed.set()
            self._done(key, longest)
            await asyncio.sleep(0)  # a line of keys that take only computing must not keep the Lease waiting

    async def _next(self) -> Key:
        """Of three workers or more, one is always left to the other namespaces."""
        while (found := self._line.take(max(FEWEST_WORKERS, self._workers - 1))) is None:
            self._changed.clear()
            await self._changed.wait()
        return found[1]

    def _done(self, key: Key, longest: float | None) -> None:
        again = key in self._marked_again
        self._marked_again.discard(key)
        if longest is None:
            self._failures.pop(key, None)
            if again:
                self.mark(key)
            return
        before, failures = self._failures.get(key, (longest, 0))
        # An outage does not count for what is refused after it.
        failures = failures + 1 if before == longest else 1
        self._failures[key] = (longest, failures)
        if again:  # what was refused may have been put right meanwhile
            longest = min(longest, SOON_SECONDS)
        self.mark_in(key, backoff_seconds(failures, longest, random.random()))


def backoff_seconds(failures: int, longest: float, chance: float) -> float:
    """Return how long to wait after so many failures in a row; `chance` in [0, 1) spreads keys over half of it."""
    pause = min(longest, FIRST_BACKOFF_SECONDS * 2.0 ** (min(failures, 20) - 1))
    return pause * (0.5 + chance / 2)
