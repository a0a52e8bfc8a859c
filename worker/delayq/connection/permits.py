"""A bounded number of permits that cannot be lost, for code that signal handlers may interrupt at any instruction.

The locks and semaphores of `threading` stay taken when an exception of a signal handler arrives between their
instructions, and a handler that takes one again waits for itself. Here a permit is an object. give() returns it, and so
does the end of its last reference: an interrupted call cannot keep it. No state needs two steps to be right.
"""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final
from weakref import ref

RECOUNT_SECONDS: Final = (
    0.1  # a thread that waits counts again: another one, woken instead, may have been interrupted
)


class Permit:
    """Refer to it only where it is used."""

    __slots__ = ("__weakref__",)


class Permits:
    """At most `most` permits at a time, for any number of threads."""

    def __init__(self, most: int) -> None:
        """Start with none taken."""
        self._most = most
        self._taken: dict[
            int, ref[Permit]
        ] = {}  # by id(), oldest first; the reference is dead after an interruption
        self._returned: SimpleQueue[object] = (
            SimpleQueue()
        )  # a message for each, which wakes a thread that waits

    def take(self, seconds: float = 0.0) -> Permit | None:
        """Return a permit; wait for one until `seconds` have passed, then return None."""
        until, wait = time.monotonic() + seconds, 0.0
        while wait >= 0:
            with suppress(Empty):
                self._returned.get(timeout=wait)
            permit = self._new()
            if permit is not None:
                return permit
            wait = min(until - time.monotonic(), RECOUNT_SECONDS)
        return None

    def give(self, permit: Permit) -> None:
        """Return a permit, unless that was done already."""
        if self._taken.pop(id(permit), None) is not None:
            self._returned.put(None)

    def _new(self) -> Permit | None:
        if len(self._taken) >= self._most and self._recounted() >= self._most:
            return None
        permit = Permit()
        self._taken[id(permit)] = ref(permit, self._returned.put)
        # Other threads may have done the same: of those, the first ones count.
        if len(self._taken) > self._most and id(permit) not in list(self._taken)[: self._most]:
            self.give(permit)
            return None
        return permit

    def _recounted(self) -> int:
        """Return how many permits are taken."""
        for each, permit in list(self._taken.items()):
            if permit() is None and self._taken.get(each) is permit:
                self._taken.pop(each, None)
        return len(self._taken)
