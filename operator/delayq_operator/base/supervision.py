"""Runs the operator's tasks concurrently. The first failure ends all; its error ends the process.

After a failed watch or withdrawn rights, a restart is safer than to continue.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine

END_SECONDS: Final = 1.5


class Parts:
    """The tasks of a process, in a running event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def unless(self, stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> None:
        """Do `work` until `stop`, or until a part fails: then raise its error."""
        mine, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            done, _ = await asyncio.wait({mine, stopped, self._failed}, return_when=asyncio.FIRST_COMPLETED)
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
