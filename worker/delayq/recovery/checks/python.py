"""Checks that are Python functions. Not here: imports and threads, which handlers/ has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.handlers.base import HandlerSetupError
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.importing import CONNECTION, load, needs_connection
from delayq.handlers.python import in_thread, is_async
from delayq.handlers.threads import Threads
from delayq.recovery.checks.base import Answer, verdict_of

if TYPE_CHECKING:
    from delayq.contract.files import Reference
    from delayq.handlers.base import HandlerCall
    from delayq.protocol.envelope import Task

FIELD = "spec.recovery.check.python.callable"
PAIR = 2


class PythonCheck:
    """A coroutine function, or a plain function in a thread."""

    _call: HandlerCall

    def __init__(self, path: str, *, concurrency: int) -> None:
        """Import the function now, so that a wrong name fails at start-up."""
        target = load(path, FIELD)
        if needs_connection(target):
            raise HandlerSetupError(FIELD, f'"{path}" takes a {CONNECTION}: a check is given the task alone')
        self._threads = Threads(concurrency)
        self._call = target if is_async(target) else in_thread(target, self._threads)  # type: ignore[assignment]  # mypy cannot tell the two kinds apart

    @property
    def stuck(self) -> int:
        """The number of threads that still run cancelled checks."""
        return self._threads.abandoned

    def lacks(self) -> dict[Reference, str]:
        """Need no file of an HTTP service."""
        return {}

    async def start(self) -> None:
        """Open nothing."""

    async def ask(self, task: Task) -> Answer:
        """Call the function; it returns a verdict, or a verdict and a reason."""
        try:
            found = await self._call(task)
        finally:
            end_if_forked()
        if isinstance(found, tuple) and len(found) == PAIR:
            return Answer(verdict_of(found[0]), str(found[1]))
        return Answer(verdict_of(found))

    async def close(self) -> None:
        """End the threads; a stuck one does not block the end of the process."""
        self._threads.close()
