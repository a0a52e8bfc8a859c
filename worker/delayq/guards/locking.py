"""Base of the lock guards: begin acquires the lock and renews it, finish and abandon release it.

Renewal uses only the monotonic clock: if the system clock jumps, holds are not affected. A hold is lost when a renewal
finds the lock gone, or when its time limit expires without a confirmed renewal. The worker measures from the start of
the request, so a hold never outlasts the lock on the server.

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
from dataclasses import dataclass, field
from typing import Final

from delayq.errors import DelayQError, GuardUnavailable
from delayq.guards.background import Background
from delayq.guards.base import Guard, Hold
from delayq.protocol.envelope import Task
from delayq.service import logs

log = logging.getLogger(__name__)

RENEWALS: Final = 3  # per time limit: if one fails, there is time for others
TRIES: Final = 12  # per time limit, while renewals fail
RELEASE_SECONDS: Final = 2.0  # timeout of a release: after that, the lock expires by itself
MIN_BUSY_MS, MAX_BUSY_MS = 100, 5000  # of a retry: the holder may need much less than its time limit
TOO_LATE: Final = "no renewal of the task's lock was confirmed in time"
GONE: Final = "the task's lock is gone: it expired, was deleted, or Redis lost it"


def busy_ms(others_ms: int, rand: float) -> int:
    """Return when to retry a lock that another run holds for at most `others_ms`; `rand` is in [0, 1).

    25,000 → 4,000 to 5,000; 800 → 640 to 800; 3 → 100 to 120: random, so that many retries do not run at once.
    """
    spread = min(others_ms, MAX_BUSY_MS) * (1 - 0.2 * rand)
    return int(max(spread, MIN_BUSY_MS * (1 + 0.2 * rand)))


def validity_seconds(ttl_seconds: float) -> float:
    """Return how long a lock is safe, from the start of its request.

    It allows for the drift between two clocks, and for Redis' resolution of a millisecond. Redis' documentation of
    Redlock ("Distributed Locks with Redis") subtracts a few milliseconds; its reference implementation, redlock-rb,
    subtracts 1 % and 2 ms. 30 s → 29.698 s.
    """
    return ttl_seconds - (ttl_seconds * 0.01 + 0.002)


@dataclass(eq=False, kw_only=True)
class LockHold(Hold):
    """A hold whose lock is valid until `until`, by the monotonic clock, unless renewed."""

    owner: str
    """The lock's value, unique to the run: the token of the lease, and a random part."""
    until: float
    over: bool = field(default=False, init=False)
    """Whether the lock has been released: nothing may set it again."""
    renewing: asyncio.Task[None] = field(init=False)
    """A renewal that is in progress when it is cancelled is harmless: it changes only this hold's lock."""


class LockGuard(Guard[LockHold]):
    """A guard that holds a lock with a time limit while the task runs, and keeps no record afterwards."""

    def __init__(self, ttl_seconds: float) -> None:
        """`ttl_seconds`: how long a lock lasts after its holder crashes."""
        if not ttl_seconds >= 1:
            raise ValueError(f"ttl_seconds: expected 1 or more, got {ttl_seconds!r}")
        self._ttl_seconds, self._ttl_ms = float(ttl_seconds), int(ttl_seconds * 1000)
        self._background = Background()
        self._holds: set[LockHold] = set()

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
            until = asked + validity_seconds(self._ttl_seconds)
            if time.monotonic() >= until:
                why = "acquiring the lock took longer than its ttlSeconds"
                raise GuardUnavailable(self.where, why)  # noqa: TRY301 -- the lock is released, as below
        except BaseException:
            self._background.start(self._release(task, owner))  # the lock may be set, and only the reply lost
            raise
        hold = LockHold(task, owner=owner, until=until)
        hold.renewing = asyncio.create_task(self._keep(hold))
        self._holds.add(hold)
        return hold

    async def _keep(self, hold: LockHold) -> None:
        """Renew the lock until the hold is lost."""
        pause = self._ttl_seconds / RENEWALS
        try:
            while not hold.lost:
                await asyncio.sleep(max(0.0, min(pause, hold.until - time.monotonic())))
                confirmed = await self._try(hold)
                pause = self._ttl_seconds / (RENEWALS if confirmed else TRIES)
        except Exception as error:  # noqa: BLE001 -- a hold without renewal is lost, for any reason
            hold.lose(f"the task's lock cannot be renewed: {type(error).__name__}")

    async def _try(self, hold: LockHold) -> bool:
        """Renew once; return whether it was confirmed. If it was denied, or confirmed too late, the hold is lost."""
        asked = time.monotonic()
        if asked >= hold.until:
            hold.lose(TOO_LATE)
            return False
        try:
            async with asyncio.timeout(hold.until - asked):
                ours = await self._renew(hold)
        except TimeoutError:
            ours = None
        if ours is None:
            return False
        if not ours:
            hold.lose(GONE)
        elif time.monotonic() >= hold.until:  # this process was stopped: another run may have held the lock
            hold.lose(TOO_LATE)
        else:
            hold.until = asked + validity_seconds(self._ttl_seconds)
        return ours

    async def finish(self, hold: LockHold) -> None:
        """Release the lock. Only log a lost lock: the handler has finished, and another run would not help."""
        hold.over = True
        hold.renewing.cancel()
        self._holds.discard(hold)
        await asyncio.wait({self._background.start(self._give_back(hold))}, timeout=RELEASE_SECONDS)

    async def abandon(self, hold: LockHold) -> None:
        """Release the lock of a failed or interrupted run, if possible."""
        await self.finish(hold)

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
        for hold in self._holds:
            hold.renewing.cancel()
        self._holds.clear()
        await self._background.drain(RELEASE_SECONDS)
        await self._disconnect()

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close every connection."""


def unavailable(where: str, error: DelayQError) -> GuardUnavailable:
    """Return the guard's error for an error of Redis."""
    return GuardUnavailable(where, getattr(error, "why", None) or str(error))
