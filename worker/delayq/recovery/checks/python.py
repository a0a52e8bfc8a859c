"""Checks that are Python functions. Not here: finding them and their threads, which handlers have too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.handlers import HandlerSetupError
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.importing import CONNECTION, load, needs_connection
from delayq.handlers.python import in_thread, is_async
from delayq.handlers.threads import Threads
from delayq.recovery.checks.base import Answer, verdict_of

if TYPE_CHECKING:
    from delayq.handlers.base import HandlerCall
    from delayq.protocol.envelope import Task

FIELD = "spec.recovery.check.python.callable"
PAIR = 2


class PythonCheck:
    """A coroutine function, or a plain one with a thread under it."""

    _call: HandlerCall

    def __init__(self, path: str, *, concurrency: int) -> None:
        """Import now: a document that names nothing callable must not get as far as asking it."""
        target = load(path, FIELD)
        if needs_connection(target):
            raise HandlerSetupError(FIELD, f'"{path}" takes a {CONNECTION}: a check is given the task alone')
        self._threads = Threads(concurrency)
        self._call = target if is_async(target) else in_thread(target, self._threads)  # type: ignore[assignment]  # mypy cannot tell the two kinds apart

    @property
    def stuck(self) -> int:
        """How many threads are held by questions that were given up."""
        return self._threads.abandoned

    async def start(self) -> None:
        """Nothing to open."""

    async def ask(self, task: Task) -> Answer:
        """Call the function; it returns the verdict, or the verdict and a reason."""
        try:
            said = await self._call(task)
        finally:
            end_if_forked()
        if isinstance(said, tuple) and len(said) == PAIR:
            return Answer(verdict_of(said[0]), str(said[1]))
        return Answer(verdict_of(said))

    async def close(self) -> None:
        """Let the threads end; one that is stuck does not keep the process from ending."""
        self._threads.close()
