"""Renew a lock with a time limit while a task runs, and detect its loss.

It uses only the monotonic clock: if the system clock jumps, holds are not affected. A hold is lost when a renewal finds
the lock gone, or when its time limit expires without a confirmed renewal. The worker measures from the start of the
request, so a hold never outlasts the lock on the server.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.guards.base import Hold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RENEWALS: Final = 3  # per time limit: if one fails, there is time for others
TRIES: Final = 12  # per time limit, while renewals fail
TOO_LATE: Final = "no renewal of the task's lock was confirmed in time"
GONE: Final = "the task's lock is gone: it expired, was deleted, or Redis lost it"


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


class Renewal:
    """Renews the lock of one hold until it is stopped or the hold is lost."""

    def __init__(
        self, hold: LockHold, ttl_seconds: float, renew: Callable[[], Awaitable[bool | None]]
    ) -> None:
        """`renew` returns whether the hold still owned the lock; None if unknown."""
        self._hold, self._ttl_seconds, self._renew = hold, ttl_seconds, renew
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Stop renewals. A renewal in progress is harmless: it changes only this hold's lock."""
        self._task.cancel()

    async def _run(self) -> None:
        hold, pause = self._hold, self._ttl_seconds / RENEWALS
        try:
            while not hold.lost:
                await asyncio.sleep(max(0.0, min(pause, hold.until - time.monotonic())))
                confirmed = await self._try()
                pause = self._ttl_seconds / (RENEWALS if confirmed else TRIES)
        except Exception as error:  # noqa: BLE001 -- a hold without renewal is lost, whatever the reason
            hold.lose(f"the task's lock cannot be renewed: {type(error).__name__}")

    async def _try(self) -> bool:
        """Renew once; return whether it was confirmed. If it was denied, or confirmed too late, the hold is lost."""
        hold, asked = self._hold, time.monotonic()
        if asked >= hold.until:
            hold.lose(TOO_LATE)
            return False
        try:
            async with asyncio.timeout(hold.until - asked):
                ours = await self._renew()
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
