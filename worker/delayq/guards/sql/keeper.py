"""Steps on the event loop that are given up in time, and what becomes of them then.

A driver that is cancelled may itself wait for a server that answers no more. So each step is a task of its own: whoever
waits for it goes on after the time limit or the cancellation, and the step ends in the background.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
CANCELLATIONS, APART_SECONDS = 3, 5.0


class Keeper:
    """Runs steps, and keeps those that were given up until they have ended."""

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
        """Return what the step returns; TimeoutError when that takes too long. `unwanted` undoes a late success.

        The step itself may go on for `more` seconds when nobody waits for it any more; then it is cancelled.
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
        """Give the late ones a moment to end."""
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
            await asyncio.wait({running}, timeout=APART_SECONDS)
    if running.done() and not running.cancelled() and running.exception() is None and unwanted is not None:
        await unwanted(running.result())
