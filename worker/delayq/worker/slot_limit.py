"""Fewer slots while the process lacks what handlers need to begin: threads, processes, descriptors, memory.

A run that cannot begin is released, uncharged (service/resources.py decides). A worker that went on would claim again
at once, and take tasks from workers that can run them. So it uses only as many slots as have begun, and tries more of
them later. If for END_SECONDS no handler can begin, or each step of a loop fails, the process ends: only a restart
frees what a handler has leaked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from delayq.errors import DelayQError
from delayq.protocol.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.errors import NotStarted
    from delayq.service.loop import Loop
    from delayq.worker.slots import Running, Slots

log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
PAUSE_SECONDS = (1.0, 10.0)  # the first and the longest one before more slots are tried
END_SECONDS = 30.0
UNCHARGED = "The tasks were released, uncharged."


class LacksResources(DelayQError):
    """No handler could begin for a while; the process has ended for that reason."""


class SlotLimit:
    """The slots that one worker can use."""

    name, blocks = "slot_limit", False

    def __init__(
        self, slots: Slots, loops: Callable[[], Iterable[Loop]] = tuple, end_seconds: float = END_SECONDS
    ) -> None:
        """All slots are usable. `loops` are those of the worker."""
        self._slots, self._loops, self._end_seconds = slots, loops, end_seconds
        self._pause = PAUSE_SECONDS[0]
        self._next_at = 0.0  # when more slots are tried; monotonic seconds, as below
        self._none_since: float | None = None  # when no handler began for the first time
        self._begun = 0  # handlers that have begun, until then
        self._released, self._error = 0, ""  # since the last line of the log
        self._claimed, self._lacked = (
            0,
            False,
        )  # tasks claimed until the last change; whether a run failed since then
        self._ended = asyncio.Event()
        self._why = ""
        self.alarm = Alarm()

    @property
    def waits_for(self) -> str:
        """What no handler can begin without; empty while one can. See Waiting."""
        return self._error if self._slots.unusable and self._slots.total <= 0 else ""

    def note(self, running: Running, error: NotStarted) -> None:
        """Use only the slots of tasks that began: this run, and those of its call, did not."""
        slots, now = self._slots, time.monotonic()
        if not self._lacked:
            self._pause = min(2 * self._pause, PAUSE_SECONDS[1]) if slots.unusable else PAUSE_SECONDS[0]
            self._lacked, self._claimed, self._next_at = True, slots.counters.claimed, now + self._pause
            self.alarm.ring()
        self._released, self._error = self._released + 1, str(error)
        handlers = sum(slots.counters.handler.counts)
        if handlers != self._begun:
            self._begun, self._none_since = handlers, None
        begun = len(slots.running) - (1 if running.call is None else len(running.call.members))
        if begun < slots.total:
            slots.limit_by(slots.total - max(0, begun))
        if begun > 0:
            self._none_since = None
        elif self._none_since is None:
            self._none_since = now
        elif now - self._none_since >= self._end_seconds:
            seconds = now - self._none_since
            self._end(seconds, f"no handler could begin for {seconds:.0f} s: {self._error}. {UNCHARGED}")

    def _end(self, seconds: float, problem: str) -> None:
        if not self._why:
            self._why = (
                f"{problem} Raise the limit of threads, processes, descriptors or memory of this process, or lower "
                "worker.concurrency"
            )
            log.error(
                "resources_exhausted", extra={"fields": {"seconds": round(seconds), "error": self._error}}
            )
            self._ended.set()

    async def step(self) -> float:
        """Log what was released, and try more slots; returns the pause until the next try."""
        self._log()
        for loop in self._loops():
            if (seconds := loop.lacking_seconds) >= self._end_seconds:
                self._error = f"each step of {loop.service.name} failed"
                self._end(seconds, f"{self._error} for {seconds:.0f} s because this process lacks memory.")
        slots, now = self._slots, time.monotonic()
        if not slots.unusable:
            return IDLE_SECONDS
        if now < self._next_at:
            return self._next_at - now
        if slots.total <= 0 or slots.counters.claimed != self._claimed:
            self._try_more(now)
        return self._pause

    def _try_more(self, now: float) -> None:
        slots = self._slots
        if slots.total > 0:  # what was claimed since the last change has begun
            self._pause, self._none_since = PAUSE_SECONDS[0], None
        slots.limit_by(-min(slots.unusable, max(1, slots.total // 2)))
        self._lacked, self._claimed, self._next_at = False, slots.counters.claimed, now + self._pause
        if not slots.unusable:
            log.info("slots_restored", extra={"fields": {"slots": slots.total}})

    def _log(self) -> None:
        if self._released:
            slots = self._slots
            fields = {
                "released": self._released,
                "usable": slots.total,
                "slots": slots.total + slots.unusable,
            }
            log.error("slots_withheld", extra={"fields": fields | {"error": self._error}})
            self._released = 0

    async def serves_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`, or until the process has to end."""
        waits = [asyncio.ensure_future(each.wait()) for each in (stop, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def check(self) -> None:
        """Raise LacksResources if that has ended the process."""
        if self._why:
            raise LacksResources(self._why)
