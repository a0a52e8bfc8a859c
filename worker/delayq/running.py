"""Running one task: start its handler, and turn the way it ended into a settlement."""

from __future__ import annotations

import asyncio
import logging
import random
import sysconfig
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from delayq import backoff
from delayq.errors import Bury, GuardBusy, GuardLost, GuardUnavailable, Retry, Seen, check_retry
from delayq.inflight import Running, Settlement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.contract import Delivery
    from delayq.message import Task
    from delayq.tally import WorkerTally

    HandlerCall = Callable[[Task], Awaitable[object]]

log = logging.getLogger(__name__)

MAX_ERROR_BYTES = 500
# What a guard says of a task, and not its handler: no failure, and no sample of how long the handler takes.
_REFUSED = (Seen, GuardBusy, GuardUnavailable)
_EVENTS: dict[type[Retry], str] = {
    Retry: "handler_failed",
    GuardBusy: "guard_busy",
    GuardLost: "guard_lost",
    GuardUnavailable: "guard_unavailable",
}
UNREADABLE = "the handler raised an exception that cannot be read (a Retry without super().__init__()?)"
_DELAYQ = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Runner:
    """Calls the handler and counts what happens."""

    def __init__(self, call: HandlerCall, delivery: Delivery, tally: WorkerTally) -> None:
        """`call` is the handler's."""
        self._call, self._delivery, self._tally = call, delivery, tally
        self._lease_seconds = delivery.lease_seconds

    async def run(self, running: Running) -> Settlement | None:
        """Run one task to its end. None when there is nothing to settle, because the lease is lost."""
        started = time.monotonic()
        if started - running.extended_at > self._lease_seconds:
            return None  # this process was stopped between claiming and now; the task is somebody else's
        self._tally.claimed_to_started.observe(started - running.extended_at)
        try:
            await self._call(running.lease.task)
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is that task's failure
            settlement = self.settlement(running, error)
            if isinstance(error, _REFUSED):
                return settlement
        else:
            settlement = self.settlement(running, None)
        self._tally.handler.observe(time.monotonic() - started)
        return settlement

    def settlement(self, running: Running, error: BaseException | None) -> Settlement | None:
        """Turn the end of a task into its settlement, whatever was raised; `error` is None when the handler returned.

        Exceptions are users' code, too: their attributes may be missing, and even str() of them may raise or exit.
        """
        try:
            return self._settlement(running, error)
        except BaseException:  # noqa: BLE001 -- nothing of it can be trusted, so nothing of it is told
            if running.cancelled_for == "drain":
                return _released(running)
            return self._retried(running, UNREADABLE)

    def _settlement(self, running: Running, error: BaseException | None) -> Settlement | None:
        """A cancelled handler does not decide by how it ends: its cleanup may raise, or swallow the cancellation."""
        reason = running.cancelled_for
        if reason == "lease_lost":
            return None
        if isinstance(error, Seen):
            return self._seen(running, error)
        if reason == "drain" and not isinstance(error, (Bury, Retry)):
            return _released(running)  # anything else would charge the task for our stopping
        if reason == "timeout":
            seconds = self._delivery.handler_timeout_seconds
            error = TimeoutError(f"task ran longer than handlerTimeoutSeconds ({seconds})")
        return Settlement("ack", running.lease) if error is None else self._failed(running, error)

    def _seen(self, running: Running, error: Seen) -> Settlement:
        fields = {"task_id": running.lease.task.id, "why": bounded(_message(error))}
        log.info("seen", extra={"fields": fields})
        return Settlement("ack", running.lease)

    def _failed(self, running: Running, error: BaseException) -> Settlement:
        if isinstance(error, Bury):
            return self._bury(running, error)
        if isinstance(error, Retry):
            check_retry(error.delay_ms, charge=error.charge)  # a subclass may not have called ours
            event = _EVENTS.get(type(error), _EVENTS[Retry])
            return self._retried(
                running, described(error), delay_ms=error.delay_ms, charge=error.charge, event=event
            )
        if isinstance(error, asyncio.CancelledError):
            return self._retried(running, "the handler cancelled itself")
        return self._retried(running, described(error))

    def _retried(
        self,
        running: Running,
        text: str,
        *,
        delay_ms: int | None = None,
        charge: bool = True,
        event: str = _EVENTS[Retry],
    ) -> Settlement:
        task = running.lease.task
        if delay_ms is None:
            failures = running.lease.failures + 1
            delay_ms = backoff.delay_ms(failures, self._delivery.backoff, random.random())  # noqa: S311 -- jitter
        fields = {"task_id": task.id, "attempt": task.attempt, "retry_in_ms": delay_ms, "error": text}
        log.warning(event, extra={"fields": fields})
        return Settlement("retry", running.lease, (delay_ms, int(charge), text))

    def _bury(self, running: Running, order: Bury) -> Settlement:
        text = bounded(_message(order)) or "buried by the handler"
        log.warning("handler_buried", extra={"fields": {"task_id": running.lease.task.id, "error": text}})
        return Settlement("bury", running.lease, (text,))


def _released(running: Running) -> Settlement:
    return Settlement("release", running.lease, (running.lease.task.due_ms,))


def described(error: BaseException) -> str:
    """Return an exception and where it was raised: `KeyError: 'order' (shop.orders:load line 7)`, then its details.

    The first line is what dead letters are grouped by.
    """
    first, *details = _text(error).splitlines() or [""]
    place = None if isinstance(error, Retry) else _place(error)
    return bounded("\n".join([f"{first} ({place})" if place else first, *details]))


def _text(error: BaseException) -> str:
    return _message(error) if isinstance(error, Retry) else f"{type(error).__name__}: {_message(error)}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 -- an exception's own __str__ is a user's code too
        return f"(its message cannot be shown: {type(broken).__name__})"


def _place(error: BaseException) -> str | None:
    """The innermost line of the user's own code: not ours, not a library's that it called."""
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((*_LIBRARIES, _DELAYQ))
    ]
    if not frames:
        return None
    frame, line = frames[-1]
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname} line {line}"


def bounded(text: str) -> str:
    """Return at most MAX_ERROR_BYTES of a text, without its indentation: Redis keeps it beside the task."""
    lines = "\n".join(" ".join(line.split()) for line in text.splitlines())
    return lines.encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")
