"""Handlers that are Python callables. Not here: finding them (`importing.py`), threads (`threads.py`)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from delayq.handlers.importing import load, unwrap
from delayq.handlers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.message import Task


class PythonHandler:
    """The user's coroutine function itself, or a plain function with a thread under it."""

    call: Callable[[Task], Awaitable[object]]

    def __init__(self, path: str, *, concurrency: int) -> None:
        """Import now: a document that names nothing callable must not get as far as claiming tasks."""
        target = load(path)
        self._threads = Threads(concurrency)
        self.call = target if is_async(target) else in_thread(target, self._threads)  # type: ignore[assignment]  # mypy cannot tell the two kinds apart

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Let the threads end; one that is stuck does not keep the process from ending."""
        self._threads.close()


def is_async(target: Callable[..., object]) -> bool:
    """Tell whether calling it gives a coroutine, through partials and objects with an async __call__."""
    function = unwrap(target)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def in_thread(function: Callable[[Task], object], threads: Threads) -> Callable[[Task], Awaitable[object]]:
    """Make a coroutine function of a plain one."""

    async def call(task: Task) -> object:
        result = await threads.run(function, task)
        # A plain wrapper around a coroutine function looks plain from outside; its coroutine is for our loop.
        return await result if inspect.isawaitable(result) else result

    return call
