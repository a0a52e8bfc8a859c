"""Steps of a driver without asyncio, for code on the event loop: each in a thread, which nothing can cancel.

Daemon threads: one that hangs in a driver must not keep the process from ending. The pool bounds what they do.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(step: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """Return what the step returns. When cancelled, the thread goes on, and `unwanted` undoes what it came to."""
    job = _Job(step, unwanted or (lambda _: None))
    _start(job.run)
    try:
        return await job.done
    except asyncio.CancelledError:
        job.leave()
        raise


class _Job(Generic[T]):
    """One step, and who wants what comes of it."""

    def __init__(self, step: Callable[[], T], unwanted: Callable[[T], object]) -> None:
        self._step, self._unwanted = step, unwanted
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        """Run in the thread."""
        try:
            value = self._step()
        except BaseException as error:  # noqa: BLE001 -- handed to the event loop, never swallowed
            failure = error  # the name above ends with its block
            self._tell(lambda: self._fail(failure))
        else:
            if not self._tell(lambda: self._deliver(value)):
                self._unwanted(value)

    def leave(self) -> None:
        """Say that nobody waits any more: the step may have ended in this very moment."""
        if self.done.done() and not self.done.cancelled() and self.done.exception() is None:
            self._drop(self.done.result())

    def _tell(self, what: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop has ended before
            return False
        return True

    def _deliver(self, value: T) -> None:
        if self.done.done():
            self._drop(value)
        else:
            self.done.set_result(value)

    def _fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _drop(self, value: T) -> None:
        _start(lambda: self._unwanted(value))


def _start(run: Callable[[], object]) -> None:
    threading.Thread(target=run, name="delayq-guard", daemon=True).start()
