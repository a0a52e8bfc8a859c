"""Handlers that are Python callables. Not here: finding them (`importing.py`), threads (`threads.py`)."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from delayq.handlers.base import Handler, HandlerSetupError
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.guarded import sharing, sharing_in_thread
from delayq.handlers.importing import (
    CONNECTION,
    TASK_OR_BOTH,
    load,
    needs_connection,
    takes_connection,
    unwrap,
)
from delayq.handlers.stale_connections import closer_of_stale_connections
from delayq.handlers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.contract import Delivery
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.handlers.base import HandlerCall
    from delayq.protocol.envelope import Task

FIELD = "spec.handler.python.callable"
NO_KIND = ("", 0)
GUARDS = "spec.guard.sqlUnique, sqlPessimistic and sqlOptimistic"


class PythonHandler(Handler):
    """The user's coroutine function, or a plain function that runs in threads."""

    def __init__(
        self,
        path: str,
        *,
        concurrency: int,
        transactions: bool = False,
        delivery: Delivery | None = None,
        field: str = FIELD,
    ) -> None:
        """Import now: without a usable callable, the worker must not claim tasks.

        `transactions`: whether the document's guard has transactions, in which the function can take part. `field` is
        the path in the document that errors name.
        """
        self._target = target = load(path, field, takes=TASK_OR_BOTH)
        self._path, self._field = path, field
        self._threads = Threads(concurrency)
        # Not tasks of an App, whose arguments it does not expect: during a change from one to the other, they wait.
        self.kinds = None if delivery is None else {NO_KIND: delivery}
        self.joins = transactions and takes_connection(target)
        if needs_connection(target) and not transactions:
            only = f"which only {GUARDS} give; spec.guard is none of them"
            raise HandlerSetupError(field, f'"{path}" takes a {CONNECTION}, {only}')
        self.call = target if is_async(target) else in_thread(target, self._threads)  # type: ignore[assignment]  # mypy cannot tell the two kinds apart

    def check(self, coverage: Coverage) -> None:
        """Refuse a function that needs the connection if its tasks are not under the guard."""
        if needs_connection(self._target) and NO_KIND[0] not in coverage:
            raise HandlerSetupError(
                self._field,
                f'"{self._path}" takes a {CONNECTION}, but spec.guard does not cover its tasks: give the '
                "parameter a default, name the kind in spec.guard.kinds, or set spec.guard.appliesTo to AllTasks",
            )

    def _guarded(self, guard: Guard[Any]) -> HandlerCall:
        """Call the function inside the guard's block, with the open transaction if it takes one."""
        if not self.joins:
            return super()._guarded(guard)
        guard.joined(f'"{self._path}"', coroutine=is_async(self._target))  # type: ignore[attr-defined]  # only SQL guards
        if is_async(self._target):
            return sharing(self._target, guard)  # type: ignore[arg-type]  # as above
        return in_thread(sharing_in_thread(self._target, guard), self._threads)

    async def close(self) -> None:
        """Stop the threads; a stuck thread does not prevent the process from exiting."""
        self._threads.close()


def is_async(target: Callable[..., object]) -> bool:
    """Whether a call returns a coroutine; handles partials and objects with an async __call__."""
    function = unwrap(target)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def in_thread(function: Callable[[Task], object], threads: Threads) -> Callable[[Task], Awaitable[object]]:
    """Return a coroutine function that runs a plain function in a thread."""

    def alone(task: Task) -> object:
        close_stale = closer_of_stale_connections()
        try:
            if close_stale is not None:
                close_stale()
            return function(task)
        finally:
            end_if_forked()  # before a forked child reaches the event loop
            if close_stale is not None:
                with suppress(
                    Exception
                ):  # the work is done; what is wrong fails the next task before it begins
                    close_stale()

    async def call(task: Task) -> object:
        result = await threads.run(alone, task)
        # A plain wrapper around a coroutine function returns an awaitable, which must run on this loop.
        return await result if inspect.isawaitable(result) else result

    return call
