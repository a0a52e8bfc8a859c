"""Runs parts side by side, each for ever. The first that ends, ends all: its error is the process' error.

A watch that died or rights that were withdrawn are nothing to carry on without; to start anew is better.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

END_SECONDS: Final = 1.5


class Parts:
    """The tasks of a process."""

    def __init__(self) -> None:
        """In a running event loop."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(
        self, name: str, work: Coroutine[Any, Any, None], *, may_end: bool = False
    ) -> asyncio.Task[None]:
        """Have something run from now on. What `may_end` ends nothing else, but for an error."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done_with if may_end else self._ended)
        return task

    def _done_with(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)
        else:
            self._ended(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Take note of the first part that ended; none does without a reason."""
        self._tasks.discard(task)
        if task.cancelled() or self._over.done():
            return
        error = task.exception()
        if error is not None:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)

    async def unless(self, stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> None:
        """Do `work` until `stop`, or until a part ends: then raise what ended it."""
        mine, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({mine, stopped, self._over}, return_when=asyncio.FIRST_COMPLETED)
            for future in done - {stopped}:
                future.result()
        finally:
            mine.cancel()
            stopped.cancel()

    async def end(self) -> None:
        """Cancel all that runs, and wait for it, but not for ever."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)
