"""Handlers that are an App: a function for each kind of task. Not here: what an App is (delayq.app)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.app import App, Context
from delayq.app.arguments import InvalidArguments
from delayq.contract import Backoff
from delayq.errors import Bury
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.guarded import apart, sharing, sharing_in_thread
from delayq.handlers.importing import load_object
from delayq.handlers.python import in_thread, is_async
from delayq.handlers.threads import Threads
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.app import TaskKind
    from delayq.connection import Address
    from delayq.contract import DelayQueue, Delivery
    from delayq.guards import Guard
    from delayq.handlers.base import HandlerCall, Kinds
    from delayq.protocol.envelope import Task

FIELD = "spec.handler.python.app"


class AppHandler:
    """The functions of an App, coroutine functions or plain ones, which run in threads."""

    kinds: Kinds

    def __init__(
        self, app: App, queue: DelayQueue, address: Address | None = None, *, transactions: bool = False
    ) -> None:
        """Bind the App to the queue; HandlerSetupError if it cannot run under the document's guard.

        `address` is that of the queue's Redis, if it is not the document's: tasks may schedule others. `transactions`:
        the document names a guard that has some; a Context then holds the connection.
        """
        app.bind_document(queue, url=address)
        self._app, self._threads = app, Threads(queue.spec.worker.concurrency)
        self.kinds = {(kind.name, kind.version): _delivery(kind, queue.spec.delivery) for kind in app}
        with_context = {kind.takes_context for kind in app}
        self.joins = transactions and with_context == {True}
        if transactions and len(with_context) > 1:
            problem = "under a SQL guard either every task takes a Context, with its connection, or none does"
            raise HandlerSetupError(FIELD, problem)
        self._state: Any = None
        self._opened = AsyncExitStack()  # the App and its lifespan
        self._calls = {(kind.name, kind.version): self._call_of(kind) for kind in app}
        self.call: HandlerCall = self._dispatch

    async def _dispatch(self, task: Task) -> object:
        return await self._calls[task.kind, task.kind_version](task)

    def _call_of(self, kind: TaskKind[..., Any]) -> HandlerCall:
        run = self._adapter(kind)
        return run if is_async(kind.function) else in_thread(run, self._threads)

    def _adapter(self, kind: TaskKind[..., Any]) -> Callable[..., Any]:
        """Return a function of a task, and of a connection, that calls the kind's function with its arguments."""
        function, decode = kind.function, kind.arguments.decode

        def arguments(task: Task) -> dict[str, Any]:
            if task.content_type != JSON_TYPE:
                raise Bury(f"task {kind.name}: expected a JSON payload, got {task.content_type}")
            try:
                return decode(task.body)
            except InvalidArguments as error:
                raise Bury(f"task {kind.name}: {error}") from error

        def leading(task: Task, connection: object) -> tuple[Context, ...]:
            return (Context(task, self._state, connection),) if kind.takes_context else ()

        if is_async(function):

            async def run(task: Task, connection: object = None) -> object:
                return await function(*leading(task, connection), **arguments(task))

            return run

        def run_plain(task: Task, connection: object = None) -> object:
            return function(*leading(task, connection), **arguments(task))

        return run_plain

    def under(self, guard: Guard[Any]) -> HandlerCall:
        """Call the functions inside the guard's block, with the open transaction if they take one."""
        if not self.joins:
            return apart(self.call, guard)
        for kind in self._app:
            coroutine, run = is_async(kind.function), self._adapter(kind)
            guard.joined(coroutine=coroutine)  # type: ignore[attr-defined]  # the SQL guards can be
            self._calls[kind.name, kind.version] = (
                sharing(run, guard) if coroutine else in_thread(sharing_in_thread(run, guard), self._threads)
            )
        return self.call

    async def start(self) -> None:
        """Open the App's client, for tasks that schedule others, and enter its lifespan; close both if one fails."""
        async with AsyncExitStack() as stack:
            stack.callback(self._app.close)
            await stack.enter_async_context(self._app)
            if self._app.lifespan is not None:
                self._state = await stack.enter_async_context(self._app.lifespan())
            self._opened = stack.pop_all()

    async def close(self) -> None:
        """Leave the lifespan, close the App; a stuck thread does not prevent the process from exiting."""
        self._threads.close()
        await self._opened.aclose()


def load(path: str) -> App:
    """Import the App that the document names; HandlerSetupError before anything is claimed if there is none."""
    app = load_object(path, FIELD)
    if not isinstance(app, App):
        raise HandlerSetupError(FIELD, f'"{path}" is no App, it is of type {type(app).__name__}')
    if not list(app):
        raise HandlerSetupError(FIELD, f'"{path}" has no tasks: define them with @app.task in this module')
    return app


def _delivery(kind: TaskKind[..., Any], document: Delivery) -> Delivery:
    """Return spec.delivery with what the kind decides itself."""
    policy, own = kind.policy, dict[str, Any]()
    if policy.max_attempts is not None:
        own["max_attempts"] = policy.max_attempts
    if policy.timeout_seconds is not None:
        own["handler_timeout_seconds"] = policy.timeout_seconds
    if policy.delays_seconds is not None:
        own["backoff"] = Backoff(delays_seconds=policy.delays_seconds)
    return replace(document, **own)
