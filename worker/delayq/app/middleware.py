"""Middleware of an App: context managers around each run, and around each call that schedules a task.

A context manager cannot skip what it surrounds, repeat it or replace its result, so middleware changes no guarantee of
delivery. Not here: how a run enters it (handlers/middleware.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from delayq.app import kind as kinds
from delayq.app.options import Options
from delayq.protocol.envelope import Task


@dataclass(frozen=True, slots=True, eq=False)
class TaskRun:
    """One run, as middleware sees it: one call of a function, with one task, or with several if it has `batch=`."""

    kind: kinds.TaskKind[..., Any]
    """The kind: `name`, `version`, `function`."""
    tasks: Sequence[Task]
    """The task, or those of the batch: ID, attempt, due time, payload, headers, tags."""
    state: Any = None
    """What the App's lifespan yielded; None without one."""
    outcomes: Sequence[BaseException | None] = ()
    """After a batch has returned: for each task None or its exception. An exception of the whole call is raised."""


@dataclass(frozen=True, slots=True, eq=False)
class Scheduling:
    """One task that is being scheduled, as middleware sees it. Only `headers` can be changed."""

    kind: kinds.TaskKind[..., Any]
    """The kind: `name`, `version`, `function`."""
    arguments: Mapping[str, Any]
    """The arguments of the call by name, without defaults. Of a kind with `batch=`: `item`."""
    options: Options
    """The options of the call: `delay`, `due`, `id`, `if_exists`, `headers`, `deadline`, `debounce`, `tags`."""
    headers: dict[str, str]
    """The headers that travel with the task: those of the options, and what middleware adds."""


AroundRun: TypeAlias = Callable[
    [TaskRun], AbstractContextManager[object] | AbstractAsyncContextManager[object]
]
AroundSchedule: TypeAlias = Callable[[Scheduling], AbstractContextManager[object]]


def check(middleware: Callable[..., object], decorator: str) -> None:
    """Raise TypeError for what returns no context manager: most often a decorator is missing."""
    if not callable(middleware):
        got = f"got a {type(middleware).__name__}"
        raise TypeError(f"app.{decorator}: expected a function that returns a context manager, {got}")
    inner = inspect.unwrap(middleware)
    if inspect.isgeneratorfunction(middleware):
        missing = "@contextmanager"
    elif inspect.isasyncgenfunction(middleware) or inspect.iscoroutinefunction(middleware):
        missing = "@asynccontextmanager" if decorator == "around_run" else "@contextmanager and a plain `def`"
    elif decorator != "around_run" and inspect.isasyncgenfunction(inner):
        missing = "@contextmanager and a plain `def`: schedule_sync has no event loop;"
    else:
        return
    raise TypeError(f"app.{decorator}: {name_of(middleware)} needs {missing} below @app.{decorator}")


def name_of(middleware: object) -> str:
    """Return how messages name it."""
    return str(getattr(middleware, "__qualname__", type(middleware).__qualname__))


@contextmanager
def entered(middleware: Sequence[AroundSchedule], scheduling: Scheduling) -> Iterator[None]:
    """Enter all, the first one outermost. An exception that one of them suppresses is raised again."""
    if not middleware:
        yield
        return
    failed: BaseException | None = None
    try:
        with middleware[0](scheduling):
            try:
                with entered(middleware[1:], scheduling):
                    yield
            except BaseException as error:
                failed = error
                raise
        if failed is not None:
            raise failed
    finally:
        del failed  # its traceback has this frame: a cycle
