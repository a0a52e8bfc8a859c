"""Background work of a guard: releases, calls to slow servers, late steps. It ends before the guard is closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Background:
    """Keeps a reference to each asyncio task until it ends: the event loop has only weak references."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work`, which must not raise. Cancelling the caller does not cancel it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for all tasks, including those that they start, and cancel the rest."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._tasks and (left := until - loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left)
        late = set(self._tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
