"""Which DelayQueues have to be reconciled: each at most once in line, and never by two workers at a time.

Namespaces take turns, whatever one of them has in line: a tenant with many queues, or slow ones, delays its own.

A key that is marked while it is being worked on goes back into the line afterwards: whatever happened since the work
began may not have been seen by it. Not here: what work is (reconcile.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from delayq_operator.base import metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq_operator.base.names import Key

FEWEST_WORKERS: Final = 2
FIRST_BACKOFF_SECONDS: Final = 0.2
SOON_SECONDS: Final = (
    3.0  # longest pause while the API server is away: that it is back is noticed within this
)
LATER_SECONDS: Final = 60.0  # longest pause while something is refused that a person has to put right


class FairQueue:
    """Keys in the order they came; the next is of the namespace that has the fewest in hand, and waited longest."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: dict[str, deque[Key]] = {}
        self._in_hand: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.workers = 0

    def put(self, key: Key) -> None:
        """Put a key behind the others of its namespace."""
        self._waiting.setdefault(key.namespace, deque()).append(key)
        self._changed.set()

    async def get(self) -> Key:
        """Take the next key in hand, as soon as there is one."""
        while (namespace := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        line = self._waiting.pop(namespace)
        key = line.popleft()
        if line:
            self._waiting[namespace] = line  # behind namespaces that have as few in hand
        self._in_hand[namespace] += 1
        return key

    def done(self, key: Key) -> None:
        """Give a key back."""
        self._in_hand[key.namespace] -= 1
        if not self._in_hand[key.namespace]:
            del self._in_hand[key.namespace]
        self._changed.set()

    def _next(self) -> str | None:
        """Of three workers or more, one is always left to the other namespaces."""
        most = max(FEWEST_WORKERS, self.workers - 1)
        allowed = (each for each in self._waiting if self._in_hand[each] < most)
        return min(allowed, key=self._in_hand.__getitem__, default=None)


class Work:
    """The keys in line, those in hand, and those to come back to."""

    def __init__(self) -> None:
        """Nothing to do yet."""
        self._line = FairQueue()
        self._waiting: set[Key] = set()
        self._in_hand: set[Key] = set()
        self._begun: dict[Key, float] = {}
        self._marked_again: set[Key] = set()
        self._later: dict[Key, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[Key, tuple[float, int]] = {}  # longest pause, and how often in a row it was that

    def mark(self, key: Key) -> None:
        """Have the key worked on soon."""
        self._forget_timer(key)
        if key in self._in_hand:
            self._marked_again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._line.put(key)
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
        return max((time.monotonic() - begun for begun in self._begun.values()), default=0.0)

    async def run(
        self, handle: Callable[[Key], Awaitable[float | None]], *, allowed: Callable[[], Awaitable[object]]
    ) -> None:
        """Work on keys one by one, for ever; `handle` returns the longest pause before the next try, None if done.

        Each key waits until work is `allowed`; that is not yet work.
        """
        self._line.workers += 1
        while True:
            key = await self._line.get()
            self._waiting.discard(key)
            metrics.QUEUE_DEPTH.set(len(self._waiting))
            self._in_hand.add(key)
            try:
                await allowed()
                self._begun[key] = time.monotonic()
                longest = await handle(key)
            finally:
                self._in_hand.discard(key)
                self._begun.pop(key, None)
                self._line.done(key)
            self._done(key, longest)
            await asyncio.sleep(0)  # a line of keys that take only computing must not keep the Lease waiting

    def _done(self, key: Key, longest: float | None) -> None:
        again = key in self._marked_again
        self._marked_again.discard(key)
        if longest is not None:
            before, failures = self._failures.get(key, (longest, 0))
            failures = (
                failures + 1 if before == longest else 1
            )  # an outage does not count for what is refused after it
            self._failures[key] = (longest, failures)
            if again:  # what was refused may have been put right meanwhile
                longest = min(longest, SOON_SECONDS)
            self.mark_in(key, backoff_seconds(failures, longest, random.random()))
            return
        self._failures.pop(key, None)
        if again:
            self.mark(key)

    def _forget_timer(self, key: Key) -> None:
        _, timer = self._later.pop(key, (0.0, None))
        if timer is not None:
            timer.cancel()


def backoff_seconds(failures: int, longest: float, chance: float) -> float:
    """Return how long to wait after so many failures in a row; `chance` in [0, 1) spreads keys over half of it."""
    pause = min(longest, FIRST_BACKOFF_SECONDS * 2.0 ** (min(failures, 20) - 1))
    return pause * (0.5 + chance / 2)
