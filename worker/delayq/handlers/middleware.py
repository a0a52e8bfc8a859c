"""Runs inside the middleware of an App. Not here: what middleware is, and around scheduling (app/middleware.py)."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from delayq.app.middleware import TaskRun, name_of
from delayq.errors import Bury, Retry, Seen
from delayq.handlers.failures import message_of
from delayq.handlers.forked_children import end_if_forked
from delayq.handlers.guarded import run_to_its_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from delayq.app import TaskKind
    from delayq.app.middleware import AroundRun
    from delayq.handlers.base import BatchCall, HandlerCall
    from delayq.protocol.envelope import Task

    Inside = Callable[[TaskRun], Awaitable[Any]]


def around(
    middleware: Sequence[AroundRun], call: HandlerCall, kind: TaskKind[..., Any], state: Callable[[], Any]
) -> HandlerCall:
    """Return the call of a kind inside middleware, the first one outermost. `state` returns that of the lifespan."""

    async def run(run: TaskRun) -> None:
        try:
            result = await call(run.tasks[0])
            if inspect.isawaitable(result):  # of `async def` without `await`; it has to run in here
                run_to_its_end(await result)
        finally:
            end_if_forked()  # before the blocks of middleware end, which belong to the worker

    inside = _wrapped(middleware, run)

    async def surrounded(task: Task) -> object:
        return await inside(TaskRun(kind, (task,), state()))

    return surrounded


def around_batch(
    middleware: Sequence[AroundRun], call: BatchCall, kind: TaskKind[..., Any], state: Callable[[], Any]
) -> BatchCall:
    """Do the same with a call of several tasks."""

    async def run(run: TaskRun) -> Sequence[BaseException | None]:
        try:
            outcomes = await call(run.tasks)
        finally:
            end_if_forked()
        object.__setattr__(run, "outcomes", tuple(outcomes))  # it is frozen for middleware
        return outcomes

    inside = _wrapped(middleware, run)

    async def surrounded(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
        return await inside(TaskRun(kind, tuple(tasks), state()))  # type: ignore[no-any-return]

    return surrounded


def _wrapped(middleware: Sequence[AroundRun], call: Inside) -> Inside:
    for each in reversed(middleware):
        call = _layer(each, call)
    return call


def _layer(middleware: AroundRun, call: Inside) -> Inside:
    """Return the call inside one block of middleware.

    What is raised in it comes out of it, also if the block would suppress it: middleware cannot ack a failed task.
    """

    async def layer(run: TaskRun) -> object:
        result, failed = None, None
        try:
            try:
                async with AsyncExitStack() as stack:
                    block = middleware(run)
                    if isinstance(block, AbstractAsyncContextManager):
                        await stack.enter_async_context(block)
                    else:
                        stack.enter_context(block)
                    try:
                        result = await call(run)
                    except BaseException as error:
                        failed = error
                        raise
            except Exception as error:
                if error is failed or isinstance(error, (Retry, Bury, Seen)):
                    raise
                raise RuntimeError(_said(middleware, error)) from error
            if failed is not None:
                raise failed
            return result
        finally:
            del failed  # its traceback has this frame: a cycle

    return layer


def _said(middleware: AroundRun, error: Exception) -> str:
    return f"middleware {name_of(middleware)} raised {type(error).__name__}: {message_of(error)}"
