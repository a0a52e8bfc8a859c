"""What a worker does with its guard: counts how each run under it ended, and claims nothing while it cannot serve.

A guard that is away would send every due task round, claimed and put off, for as long as it is away. So the first task
that finds out closes the door, and this service opens it again.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any

from delayq.errors import GuardBusy, GuardLost, GuardUnavailable, Seen
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from delayq.contract.metrics import GuardOutcome
    from delayq.guards import Guard
    from delayq.protocol.envelope import Task
    from delayq.worker.executor import HandlerCall
    from delayq.worker.slots import Slots

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0  # between looks at a guard that serves: an idle worker has no task to find out with
AWAY_SECONDS = (0.5, 5.0)  # the first pause between looks at one that does not, and the longest

_OUTCOMES: dict[type[BaseException], GuardOutcome] = {
    Seen: "duplicate",
    GuardBusy: "busy",
    GuardLost: "lost",
    GuardUnavailable: "unavailable",
}


class GuardBreaker:
    """Watches the guard of one worker."""

    name, blocks = "guard_breaker", False

    def __init__(self, guard: Guard[Any], slots: Slots) -> None:
        """Nothing is claimed before the guard was seen to serve."""
        self._guard, self._slots, self._counters = guard, slots, slots.counters
        self._pause = AWAY_SECONDS[0]
        self._opened_at = self._shut_until = 0.0  # monotonic seconds
        self.alarm = Alarm()
        slots.blocked, slots.counters.guard_up = True, False

    def around(self, call: HandlerCall) -> HandlerCall:
        """Return `call`, a handler's under the guard, with its ends counted."""

        async def counted(task: Task) -> object:
            try:
                result = await call(task)
            except BaseException as error:
                self._count(error)
                raise
            self._counters.guarded["finished"] += 1
            return result

        return counted

    def _count(self, error: BaseException) -> None:
        self._counters.guarded[_OUTCOMES.get(type(error), "abandoned")] += 1
        if isinstance(error, GuardUnavailable) and not self._slots.blocked:
            self._away(error)
            now = time.monotonic()
            if now - self._opened_at < LOOK_SECONDS:
                # Looks succeed and runs do not: too few connections, a full disk. Tasks would go round and round.
                self._shut_until = now + self._longer_pause()
            self.alarm.ring()

    def _longer_pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, AWAY_SECONDS[1])
        return pause * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads the workers' looks

    async def step(self) -> float:
        """Look whether the guard serves; returns the pause until the next look."""
        shut = self._shut_until - time.monotonic()
        if self._slots.blocked and shut > 0:
            return shut
        try:
            await self._serves()
        except GuardUnavailable as error:
            if not self._slots.blocked or self._pause == AWAY_SECONDS[0]:
                self._away(error)
            return self._longer_pause()
        if self._slots.blocked:
            log.info("guard_breaker_closed", extra={"fields": {"guard": self._guard.name}})
            self._slots.blocked, self._counters.guard_up = False, True
            self._opened_at = time.monotonic()
            self._slots.ring()
        else:
            self._pause = AWAY_SECONDS[0]  # it has served from one look to the next
        return LOOK_SECONDS

    async def _serves(self) -> None:
        try:
            await self._guard.check()
        except GuardUnavailable:
            raise
        except Exception as error:
            # Whatever it is, a guard that cannot even be looked at must not be run under.
            raise GuardUnavailable(self._guard.name, f"{type(error).__name__}: {error}") from error

    def _away(self, error: GuardUnavailable) -> None:
        self._slots.blocked, self._counters.guard_up = True, False
        fields = {"guard": self._guard.name, "where": error.where, "error": error.why}
        log.error("guard_breaker_opened", extra={"fields": fields})
