"""Calls of handlers that take several tasks at once. Each task has a slot, a lease and a settlement of its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from delayq.worker.slots import Running

if TYPE_CHECKING:
    from delayq.handlers.base import Batch
    from delayq.protocol.results import Lease
    from delayq.worker.slots import CancelReason

SHRINK_BITS = 3  # each failure of a task divides the size of its calls by 8


def size_of(limit: int, failures: int, max_attempts: int) -> int:
    """Return how many tasks run in one call with a task that has failed so often.

    An exception of a call does not tell which task is at fault. So its tasks run again in smaller calls, and the last
    attempt is one alone: 500, 62, 7, 1.
    """
    if failures and failures + 1 >= max_attempts:
        return 1
    return max(1, limit >> SHRINK_BITS * failures)


class Call:
    """One call: its tasks, and the asyncio task that waits for more and then runs them."""

    def __init__(self, batch: Batch, size: int) -> None:
        """No tasks yet, and at most `size`."""
        self.batch, self._size = batch, size
        self.members: list[Running] = []
        self._ids: set[str] = set()
        self.handling: asyncio.Task[None] | None = None
        self.open, self.cancelled = True, False  # open: more tasks may be added
        self.begun_at = 0.0  # monotonic seconds
        self._full = asyncio.Event()

    def add(self, lease: Lease, extended_at: float) -> Running:
        """Add a task. Its timeout begins with the call."""
        member = Running(lease, extended_at, float("inf"), call=self)
        self._ids.add(lease.task.id)
        if len(self.members) + 1 >= self._size:
            self.begin()
        self.members.append(member)  # last: an error before it must leave no member that may run
        return member

    def takes(self, lease: Lease) -> bool:
        """Whether the task may be added: one task twice, under two leases, would be a duplicate to a guard."""
        return self.open and lease.task.id not in self._ids

    def begin(self) -> None:
        """Wait for no more tasks."""
        self.open = False
        self._full.set()

    async def filled(self) -> None:
        """Wait until the call is full, or has waited long enough."""
        if self.open and self.batch.wait_seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.batch.wait_seconds):
                    await self._full.wait()
        self.open = False

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the handler once; for lost leases and tasks to be cancelled, when no task of it is wanted."""
        single = reason in ("lease_lost", "requested")
        wanted = single and any(each.cancelled_for is None for each in self.members)
        if not (self.cancelled or wanted) and self.handling is not None:
            self.open, self.cancelled = False, True
            for each in self.members:  # their time to clean up begins now
                each.requested_at = time.monotonic()
            self.handling.cancel()
