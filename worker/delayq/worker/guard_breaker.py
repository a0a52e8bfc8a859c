"""The circuit breaker of a worker's guard, and the counters of guarded runs.

Without it, the worker would claim and postpone every due task again and again while the guard is unavailable. The first
GuardUnavailable opens the breaker: the worker stops claiming. This service closes it when the guard serves again.

If the guard applies to some kinds only, the worker goes on for the others: the open breaker postpones guarded tasks
without asking the guard.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Any, NoReturn

from delayq.errors import GuardBusy, GuardLost, GuardUnavailable, Seen
from delayq.guards.coverage import EVERY_TASK
from delayq.protocol.alarm import Alarm
from delayq.service.resources import check_lack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from delayq.contract.metrics import GuardOutcome
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.handlers.base import BatchCall
    from delayq.protocol.envelope import Task
    from delayq.worker.executor import HandlerCall
    from delayq.worker.slots import Slots

log = logging.getLogger(__name__)

CHECK_SECONDS = 10.0  # between checks while closed: an idle worker has no runs that show an outage
OPEN_SECONDS = (0.5, 5.0)  # the first and the longest pause between checks while open
POSTPONED_SECONDS = (5.0, 10.0)  # for how long an open breaker postpones a guarded task, drawn evenly

_OUTCOMES: dict[type[BaseException | None], GuardOutcome] = {
    type(None): "finished",
    Seen: "duplicate",
    GuardBusy: "busy",
    GuardLost: "lost",
    GuardUnavailable: "unavailable",
}


class GuardBreaker:
    """Watches the guard of one worker."""

    name, blocks = "guard_breaker", False

    def __init__(self, guard: Guard[Any], slots: Slots, coverage: Coverage = EVERY_TASK) -> None:
        """The breaker is open until the first successful check; nothing is claimed before the first one has ended."""
        self._guard, self._slots, self._counters, self.coverage = guard, slots, slots.counters, coverage
        self._error = GuardUnavailable(guard.name, "it has not been checked yet")
        self._pause = OPEN_SECONDS[0]
        self._has_failed = False  # since it was closed: before the first check, it is open without a failure
        self._closed_at = self._open_until = 0.0  # monotonic seconds
        self.alarm = Alarm()
        slots.blocked, slots.counters.guard_up = True, False

    @property
    def _is_open(self) -> bool:
        return not self._counters.guard_up

    def around(self, call: HandlerCall) -> HandlerCall:
        """Return `call`, the handler under the guard, with the results of guarded tasks counted."""

        async def counted(task: Task) -> object:
            try:
                result = await call(task)
            except BaseException as error:
                self._count(error)
                raise
            self._count(None)
            return result

        def selected(task: Task) -> Awaitable[object]:
            if task.kind not in self.coverage:
                return call(task)
            return self._postpone(1) if self._is_open else counted(task)

        return counted if self.coverage.kinds is None else selected

    def around_batch(self, call: BatchCall) -> BatchCall:
        """Return `call` of several guarded tasks with the result of each counted."""

        async def counted(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
            if self._is_open and self.coverage.kinds is not None:
                await self._postpone(len(tasks))
            try:
                outcomes = await call(tasks)
            except BaseException as error:
                for _ in tasks:
                    self._count(error)
                raise
            for outcome in outcomes:
                self._count(outcome)
            return outcomes

        return counted

    async def _postpone(self, tasks: int) -> NoReturn:
        self._counters.guarded["unavailable"] += tasks
        delay_ms = int(1000 * random.uniform(*POSTPONED_SECONDS))  # noqa: S311 -- spreads the tasks
        raise GuardUnavailable(self._error.where, self._error.why, delay_ms=delay_ms)

    def _count(self, error: BaseException | None) -> None:
        self._counters.guarded[_OUTCOMES.get(type(error), "abandoned")] += 1
        if isinstance(error, GuardUnavailable) and not self._is_open:
            self._open(error)
            now = time.monotonic()
            if now - self._closed_at < CHECK_SECONDS:
                # Checks succeed and runs fail (too few connections, a full disk): stay open for longer.
                self._open_until = now + self._longer_pause()
            self.alarm.ring()

    def _longer_pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, OPEN_SECONDS[1])
        return pause * random.uniform(0.75, 1.0)  # noqa: S311 -- spreads the workers' checks

    async def step(self) -> float:
        """Check the guard; returns the pause until the next check."""
        left = self._open_until - time.monotonic()
        if self._is_open and left > 0:
            return left
        try:
            await self._check()
        except GuardUnavailable as error:
            if not self._is_open or self._pause == OPEN_SECONDS[0]:
                self._open(error)
            return self._longer_pause()
        if self._is_open:
            event = "guard_breaker_closed" if self._has_failed else "guard_checked"
            log.info(event, extra={"fields": {"guard": self._guard.name}})
            self._has_failed = False
            self._closed_at = time.monotonic()
            self._set(closed=True)
        else:
            self._pause = OPEN_SECONDS[0]  # closed from one check to the next
        return CHECK_SECONDS

    async def _check(self) -> None:
        try:
            await self._guard.check()
        except Exception as error:
            check_lack(error)  # of this worker, and no fault of the guard
            if isinstance(error, GuardUnavailable):
                raise
            # A guard whose check fails in any way must not guard a run.
            raise GuardUnavailable(self._guard.name, f"{type(error).__name__}: {error}") from error

    def _open(self, error: GuardUnavailable) -> None:
        self._error, self._has_failed = error, True
        self._set(closed=False)
        fields = {"guard": self._guard.name, "where": error.where, "error": error.why}
        log.error("guard_breaker_opened", extra={"fields": fields})

    def _set(self, *, closed: bool) -> None:
        self._counters.guard_up = closed
        self._slots.blocked = not closed and self.coverage.kinds is None
        self._slots.ring()
