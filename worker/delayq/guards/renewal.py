"""Renew a lock with a time limit while a task runs, and detect its loss.

Only the monotonic clock counts: a machine's clock that steps neither shortens nor prolongs a hold. A hold is lost when
a renewal finds the lock gone, or when its time has run out and no renewal was confirmed: the worker counts from the
moment of the request, so never longer than the server.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from delayq.guards.base import Hold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RENEWALS: Final = 3  # in a lock's life: a renewal may fail, and there is time for others
TRIES: Final = 12  # of a failing renewal, in a lock's life
TOO_LATE: Final = "no renewal of the task's lock was confirmed in time"
GONE: Final = "the task's lock is gone: it ran out, was removed, or Redis forgot it"


def validity_seconds(ttl_seconds: float) -> float:
    """Return how long a lock is safe, from the start of its request.

    Clocks of two machines run at different speeds, and Redis expires by the millisecond. Redis' documentation of
    Redlock ("Distributed Locks with Redis") takes off a drift of a few milliseconds; 1 % and 2 ms is what its reference
    implementation, redlock-rb, makes of that. 30 s → 29.698 s.
    """
    return ttl_seconds - (ttl_seconds * 0.01 + 0.002)


@dataclass(eq=False, kw_only=True)
class LockHold(Hold):
    """A hold with a lock until `until`, by the monotonic clock, unless renewed."""

    owner: str
    """The lock's value: token of the lease, and a random part, so that no two runs have the same."""
    until: float
    over: bool = field(default=False, init=False)
    """Whether the lock has been given up: from then on, nothing may set it again."""


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
        """Renew once; returns whether that was confirmed. The hold is lost when it was denied, or came too late."""
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
        elif time.monotonic() >= hold.until:  # this process stood still: others may have held it in between
            hold.lose(TOO_LATE)
        else:
            hold.until = asked + validity_seconds(self._ttl_seconds)
        return ours
