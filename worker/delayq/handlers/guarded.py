"""Run a handler under a guard, with or without the guard's transaction."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.errors import GuardLost
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.threads import cancelled, note_recorded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from delayq.guards import Guard
    from delayq.handlers.base import BatchCall, HandlerCall
    from delayq.protocol.envelope import Task

T = TypeVar("T")


def close_unawaited(result: object) -> None:
    """Close a coroutine that will not run; otherwise Python warns that it was never awaited."""
    if isinstance(result, Coroutine | Generator):
        result.close()


def run_to_its_end(result: T) -> T:
    """Return the result of a handler; TypeError for an awaitable, whose code has not run yet.

    Called inside the guard's block, which then records nothing.
    """
    if not inspect.isawaitable(result):
        return result
    close_unawaited(result)
    raise TypeError(
        f"the handler returned an awaitable ({type(result).__name__}) that has not run, and the guard cannot await "
        "it: a plain function around a coroutine function cannot take a connection. Make it async: `async def`, "
        "with `await` before the inner call. Nothing was recorded"
    )


def apart(call: HandlerCall, guard: Guard[Any]) -> HandlerCall:
    """Run inside the guard's block, with effects elsewhere: an HTTP service, a command, another database."""

    async def guarded(task: Task) -> object:
        async with guard(task):
            try:
                return run_to_its_end(await call(task))
            finally:
                end_if_forked()  # before the guard's block ends: a child shares its connection with the worker

    return guarded


def sharing(call: Callable[..., Awaitable[object]], guard: Guard[Any]) -> HandlerCall:
    """Run inside the guard's transaction, which commits the handler's writes and the guard's record together."""

    async def guarded(task: Task) -> object:
        async with guard(task) as hold:
            try:
                return run_to_its_end(await call(task, connection=hold.connection))
            finally:
                end_if_forked()

    return guarded


def sharing_in_thread(function: Callable[..., object], guard: Guard[Any]) -> Callable[[Task], object]:
    """Do the same in a thread, which then holds the transaction from beginning to end.

    A cancelled function may return early without an error: the guard must not record it as done.
    """

    def guarded(task: Task) -> object:
        with guard(task) as hold:  # type: ignore[attr-defined]  # the SQL guards' blocks are of both kinds
            try:
                result = run_to_its_end(function(task, connection=hold.connection))
            finally:
                end_if_forked()
            if cancelled():
                raise GuardLost("the task was cancelled while its handler ran in a thread")
        note_recorded()
        return result

    return guarded


def sharing_batch(
    call: Callable[..., Awaitable[Sequence[BaseException | None]]], guard: Guard[Any]
) -> BatchCall:
    """Run a call of several tasks inside one transaction of the guard. Tasks that it refuses do not run."""

    async def guarded(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
        async with guard.batch(tasks) as hold:  # type: ignore[attr-defined]  # as above
            try:
                if hold.granted:
                    hold.outcomes = run_to_its_end(await call(hold.granted, connection=hold.connection))
            finally:
                end_if_forked()
        return hold.ended()  # type: ignore[no-any-return]

    return guarded


def sharing_batch_in_thread(
    function: Callable[..., Sequence[BaseException | None]], guard: Guard[Any]
) -> Callable[[Sequence[Task]], Sequence[BaseException | None]]:
    """Do the same in a thread."""

    def guarded(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
        with guard.batch(tasks) as hold:  # type: ignore[attr-defined]  # as above
            try:
                if hold.granted:
                    hold.outcomes = run_to_its_end(function(hold.granted, connection=hold.connection))
            finally:
                end_if_forked()
            if cancelled():
                raise GuardLost("the call was cancelled while its handler ran in a thread")
        return hold.ended()  # type: ignore[no-any-return]

    return guarded
