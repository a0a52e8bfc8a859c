"""Steps with a time limit, on the event loop and in threads. A thread cannot be cancelled."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.errors import NotStarted
from delayq.guards.background import Background
from delayq.service.resources import start_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
CANCELLATIONS, CANCEL_SECONDS = 3, 5.0


async def in_thread(
    step: Callable[[], T], unwanted: Callable[[T], object] | None = None, *, ends: bool = False
) -> T:
    """Return the result of the step. When cancelled, the thread continues, and `unwanted` undoes its result.

    A step that `ends` a transaction runs on the event loop if there is no thread for it: it would stay open.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on, it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(step())
        except BaseException as error:  # noqa: BLE001 -- handed to the event loop, never swallowed
            future.set_exception(error)

    def undo(ended: Future[T]) -> None:
        if unwanted is not None and ended.exception() is None:
            _start(lambda: unwanted(ended.result()), always=True)

    _start(run, always=ends)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(undo)
        raise


def _start(run: Callable[[], object], *, always: bool) -> None:
    try:
        start_thread("delayq-guard", run)
    except NotStarted:
        if not always:
            raise
        run()


class Keeper(Background):
    """Runs steps with a time limit; late ones continue in the background."""

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
            self.start(_end(running, unwanted, more))
            raise
        if running.done():
            return running.result()
        self.start(_end(running, unwanted, more))
        raise TimeoutError(f"no answer within {seconds:g} s")


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
