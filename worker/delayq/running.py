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
from delayq.errors import Bury, Retry
from delayq.inflight import Running, Settlement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.contract import Delivery
    from delayq.message import Task
    from delayq.tally import WorkerTally

    Call = Callable[[Task], Awaitable[object]]

log = logging.getLogger(__name__)

MAX_ERROR_BYTES = 500
_DELAYQ = str(Path(__file__).parent)
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Runner:
    """Calls the handler and counts what happens."""

    def __init__(self, call: Call, delivery: Delivery, tally: WorkerTally) -> None:
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
        except asyncio.CancelledError:
            settlement = self._cancelled(running)
        except BaseException as error:  # noqa: BLE001 -- whatever a handler raises is that task's failure
            settlement = self._failed(running, error)
        else:
            # A handler that swallowed its cancellation does not ack by returning.
            settlement = (
                self._cancelled(running) if running.cancelled_for else Settlement("ack", running.lease)
            )
        self._tally.handler.observe(time.monotonic() - started)
        return settlement

    def _failed(self, running: Running, error: BaseException) -> Settlement:
        if isinstance(error, Bury):
            return self._bury(running, error)
        if isinstance(error, Retry):
            return self._retry(running, error, delay_ms=error.delay_ms, charge=error.charge)
        return self._retry(running, error)

    def _cancelled(self, running: Running) -> Settlement | None:
        match running.cancelled_for:
            case "lease_lost":
                return None
            case "drain":
                return Settlement("release", running.lease, (running.lease.task.due_ms,))
            case "timeout":
                seconds = self._delivery.handler_timeout_seconds
                return self._retry(
                    running, TimeoutError(f"task ran longer than handlerTimeoutSeconds ({seconds})")
                )
        return self._retry(running, Retry("the handler cancelled itself"))

    def _retry(
        self, running: Running, error: BaseException, *, delay_ms: int | None = None, charge: bool = True
    ) -> Settlement:
        task, text = running.lease.task, described(error)
        if delay_ms is None:
            delay_ms = backoff.delay_ms(task.attempt, self._delivery.backoff, random.random())  # noqa: S311 -- jitter
        fields = {"task_id": task.id, "attempt": task.attempt, "retry_in_ms": delay_ms, "error": text}
        log.warning("handler_failed", extra={"fields": fields})
        return Settlement("retry", running.lease, (delay_ms, int(charge), text))

    def _bury(self, running: Running, order: Bury) -> Settlement:
        text = str(order) or "buried by the handler"
        log.warning("handler_buried", extra={"fields": {"task_id": running.lease.task.id, "error": text}})
        return Settlement("bury", running.lease, (bounded(text),))


def described(error: BaseException) -> str:
    """Return an exception and where it was raised: `KeyError: 'order' (shop.orders:load line 7)`, then its details.

    The first line is what dead letters are grouped by.
    """
    first, *details = _text(error).splitlines() or [""]
    place = None if isinstance(error, Retry) else _place(error)
    return bounded("\n".join([f"{first} ({place})" if place else first, *details]))


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 -- an exception's own __str__ is a user's code too
        text = f"(its message cannot be shown: {type(broken).__name__})"
    return text if isinstance(error, Retry) else f"{type(error).__name__}: {text}"


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
