"""Base of the lock guards: begin acquires the lock and renews it, finish and abandon release it.

Every lock that expires has this limit: its holder may continue after the expiry. A process that is stopped for longer
than the time limit (SIGSTOP, migration of a virtual machine, garbage collection, swapping) continues as if it still
held the lock, until its event loop has run once. A write that it sent before may arrive even later.

Martin Kleppmann described this in 2016 ("How to do distributed locking"): only the store can reject a late write, by a
fencing token that is smaller than one it has seen. `task.token` is such a token. Salvatore Sanfilippo replied ("Is
Redlock safe?") that a client that checks its clock after it acquires the lock is as safe as with any other lock that
expires, and that a store that compares tokens may need no lock. Both are right. These guards make a second run rare. A
SQL guard, or a store that compares `task.token`, prevents the effect of a second run.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from delayq.errors import DelayQError, GuardUnavailable
from delayq.guards.background import Background
from delayq.guards.base import Guard
from delayq.guards.renewal import LockHold, Renewal, validity_seconds
from delayq.service import logs

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

log = logging.getLogger(__name__)

RELEASE_SECONDS: Final = 2.0  # timeout of a release: after that, the lock expires by itself
MIN_BUSY_MS, MAX_BUSY_MS = 100, 5000  # of a retry: the holder may need much less than its time limit


def busy_ms(others_ms: int, rand: float) -> int:
    """Return when to retry a lock that another run holds for at most `others_ms`; `rand` is in [0, 1).

    25,000 → 4,000 to 5,000; 800 → 640 to 800; 3 → 100 to 120: random, so that many retries do not run at once.
    """
    spread = min(others_ms, MAX_BUSY_MS) * (1 - 0.2 * rand)
    return int(max(spread, MIN_BUSY_MS * (1 + 0.2 * rand)))


class LockGuard(Guard[LockHold]):
    """A guard that holds a lock with a time limit while the task runs, and keeps no record afterwards."""

    def __init__(self, ttl_seconds: float) -> None:
        """`ttl_seconds`: how long a lock lasts after its holder crashes."""
        if not ttl_seconds >= 1:
            raise ValueError(f"ttl_seconds: expected 1 or more, got {ttl_seconds!r}")
        self._ttl_seconds, self._ttl_ms = float(ttl_seconds), int(ttl_seconds * 1000)
        self._background = Background()
        self._renewals: dict[LockHold, Renewal] = {}

    @property
    @abstractmethod
    def where(self) -> str:
        """The server or servers, without a password."""

    @abstractmethod
    async def _acquire(self, task: Task, owner: str) -> None:
        """Acquire the lock. Raises GuardBusy, GuardUnavailable; even then, some or all servers may hold it."""

    @abstractmethod
    async def _renew(self, hold: LockHold) -> bool | None:
        """Extend the lock. Return whether this hold still owned it; None if unknown."""

    @abstractmethod
    async def _release(self, task: Task, owner: str) -> bool | None:
        """Release the lock. Return whether this hold still owned it; None if unknown. Raises nothing."""

    async def begin(self, task: Task) -> LockHold:
        """Acquire the task's lock and renew it. Raises GuardBusy, GuardUnavailable."""
        owner, asked = f"{task.token}:{secrets.token_hex(8)}", time.monotonic()
        try:
            await self._acquire(task, owner)
            hold = self._held(task, owner, asked)
        except BaseException:
            self._background.start(self._release(task, owner))  # the lock may be set, and only the reply lost
            raise
        self._renewals[hold] = Renewal(hold, self._ttl_seconds, lambda: self._renew(hold))
        return hold

    def _held(self, task: Task, owner: str, asked: float) -> LockHold:
        until = asked + validity_seconds(self._ttl_seconds)
        if time.monotonic() >= until:
            raise GuardUnavailable(self.where, "acquiring the lock took longer than its ttlSeconds")
        return LockHold(task, owner=owner, until=until)

    async def finish(self, hold: LockHold) -> None:
        """Release the lock. Only log a lost lock: the handler has finished, and another run would not help."""
        await asyncio.wait({self._give_up(hold)}, timeout=RELEASE_SECONDS)

    async def abandon(self, hold: LockHold) -> None:
        """Release the lock of a failed or interrupted run, if possible."""
        await asyncio.wait({self._give_up(hold)}, timeout=RELEASE_SECONDS)

    def _give_up(self, hold: LockHold) -> asyncio.Task[None]:
        hold.over = True
        renewal = self._renewals.pop(hold, None)  # None if the guard was closed
        if renewal is not None:
            renewal.stop()
        return self._background.start(self._give_back(hold))

    async def _give_back(self, hold: LockHold) -> None:
        if await self._release(hold.task, hold.owner) is False and not hold.lost:
            fields = logs.of_task(hold.task) | {"guard": self.name, "noticed": "when the handler had ended"}
            log.warning("guard_lost", extra={"fields": fields})

    async def seen(self, task: Task) -> bool | None:
        """Return None: a lock keeps no record."""
        del task
        return None

    async def close(self) -> None:
        """Stop renewals, complete releases in progress, and disconnect."""
        for renewal in self._renewals.values():
            renewal.stop()
        self._renewals.clear()
        await self._background.drain(RELEASE_SECONDS)
        await self._disconnect()

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close every connection."""


def unavailable(where: str, error: DelayQError) -> GuardUnavailable:
    """Return the guard's error for an error of Redis."""
    return GuardUnavailable(where, getattr(error, "why", None) or str(error))
