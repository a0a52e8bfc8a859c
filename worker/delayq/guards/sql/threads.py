"""Steps with a time limit, on the event loop and in threads. A thread cannot be cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")


async def in_thread(step: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """Return the result of the step. When cancelled, the thread continues, and `unwanted` undoes its result."""
    job = _Job(step, unwanted or (lambda _: None))
    _start(job.run)
    try:
        return await job.done
    except asyncio.CancelledError:
        job.leave()
        raise


class _Job(Generic[T]):
    """One step in a thread, and the future of its caller."""

    def __init__(self, step: Callable[[], T], unwanted: Callable[[T], object]) -> None:
        self._step, self._unwanted = step, unwanted
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        """Run in the thread."""
        try:
            value = self._step()
        except BaseException as error:  # noqa: BLE001 -- handed to the event loop, never swallowed
            failure = error  # Python deletes `error` at the end of its block
            self._call_loop(lambda: self._fail(failure))
        else:
            if not self._call_loop(lambda: self._deliver(value)):
                self._unwanted(value)

    def leave(self) -> None:
        """Undo the result for a caller that was cancelled just as the step ended."""
        if self.done.done() and not self.done.cancelled() and self.done.exception() is None:
            self._drop(self.done.result())

    def _call_loop(self, what: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:  # the loop is closed
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


CANCELLATIONS, CANCEL_SECONDS = 3, 5.0


class Keeper:
    """Runs steps with a time limit, and keeps a reference to late ones until they end."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._late: set[asyncio.Task[None]] = set()

    async def within(
        self,
        seconds: float,
        step: Coroutine[Any, Any, T],
        unwanted: Callable[[T], Awaitable[None]] | None = None,
        *,
        more: float = 0,
    ) -> T:
        """Return the result of the step; TimeoutError when it takes too long. `unwanted` undoes a late result.

        After the timeout, the step may continue for `more` seconds; then it is cancelled.
        """
        running = asyncio.ensure_future(step)
        try:
            await asyncio.wait({running}, timeout=seconds)
        except asyncio.CancelledError:
            self._leave(running, unwanted, more)
            raise
        if running.done():
            return running.result()
        self._leave(running, unwanted, more)
        raise TimeoutError(f"no answer within {seconds:g} s")

    def _leave(
        self, running: asyncio.Task[T], unwanted: Callable[[T], Awaitable[None]] | None, more: float
    ) -> None:
        late = asyncio.ensure_future(_end(running, unwanted, more))
        self._late.add(late)
        late.add_done_callback(self._late.discard)

    async def close(self, seconds: float) -> None:
        """Wait up to `seconds` for late steps."""
        if self._late:
            await asyncio.wait(set(self._late), timeout=seconds)


async def _end(
    running: asyncio.Task[T], unwanted: Callable[[T], Awaitable[None]] | None, more: float
) -> None:
    if more:
        await asyncio.wait({running}, timeout=more)
    for _ in range(CANCELLATIONS):
        if not running.done():
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_SECONDS)
    if running.done() and not running.cancelled() and running.exception() is None and unwanted is not None:
        await unwanted(running.result())
