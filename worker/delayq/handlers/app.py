"""Handlers that are an App: a function for each kind of task. Not here: what an App is (delayq.app)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.app import App, BatchContext, Context
from delayq.app.accepted import described
from delayq.app.arguments import ITEM, InvalidArguments
from delayq.contract import Backoff
from delayq.errors import ArgumentsRefused, Bury
from delayq.guards.coverage import EVERY_TASK
from delayq.handlers.base import Batch, Handler, HandlerSetupError
from delayq.handlers.guarded import (
    apart,
    close_unawaited,
    run_to_its_end,
    sharing,
    sharing_batch,
    sharing_batch_in_thread,
    sharing_in_thread,
)
from delayq.handlers.importing import load_object
from delayq.handlers.middleware import around, around_batch
from delayq.handlers.python import in_thread, is_async
from delayq.handlers.threads import Threads
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.app import TaskKind
    from delayq.app.accepted import Described
    from delayq.connection import Address
    from delayq.contract import DelayQueue, Delivery
    from delayq.guards import Guard
    from delayq.guards.coverage import Coverage
    from delayq.handlers.base import BatchCall, HandlerCall
    from delayq.protocol.envelope import Task

FIELD = "spec.handler.python.app"


class AppHandler(Handler):
    """The functions of an App, coroutine functions or plain ones, which run in threads."""

    def __init__(
        self, app: App, queue: DelayQueue, address: Address | None = None, *, transactions: bool = False
    ) -> None:
        """Bind the App to the queue.

        `address` is that of the queue's Redis, if it is not the document's: tasks may schedule others. `transactions`:
        the document names a guard that has some; a Context then holds the connection.
        """
        app.bind_document(queue, url=address)
        self._routed = queue.spec.handler.kinds or {}
        self._app, self._concurrency = app, queue.spec.worker.concurrency
        self._threads = Threads(self._concurrency)
        self.kinds = {(kind.name, kind.version): _delivery(kind, queue.spec.delivery) for kind in app}
        self.asking = {kind.name for kind in app if kind.policy.guard}
        self._transactions = transactions
        self._state: Any = None
        self._opened = AsyncExitStack()  # the App and its lifespan
        self._calls: dict[tuple[str, int], HandlerCall] = {}
        self._connect(None, EVERY_TASK)
        self.call = self._dispatch

    def _dispatch(self, task: Task) -> Awaitable[object]:
        return self._calls[task.kind, task.kind_version](task)

    def _connect(self, guard: Guard[Any] | None, coverage: Coverage) -> None:
        """Make the call of each kind, with those of `coverage` under `guard`."""
        batches = {}
        for kind in self._app:
            key, own = (kind.name, kind.version), guard if kind.name in coverage else None
            if kind.policy.batch is None:
                self._calls[key] = self._single(kind, own)
            else:
                batches[key] = self._batch(kind, kind.policy.batch, own)
        self.batches = batches

    def _single(self, kind: TaskKind[..., Any], guard: Guard[Any] | None) -> HandlerCall:
        coroutine, run = is_async(kind.function), self._adapter(kind)
        if guard is not None and self._shares(kind):
            run = (sharing if coroutine else sharing_in_thread)(run, guard)
        call: HandlerCall = run if coroutine else in_thread(run, self._threads)
        if guard is not None and not self._shares(kind):
            call = apart(call, guard.for_effects_elsewhere())
        middleware = self._app.run_middleware
        return around(middleware, call, kind, lambda: self._state) if middleware else call

    def _batch(self, kind: TaskKind[..., Any], batch: int, guard: Guard[Any] | None) -> Batch:
        coroutine, run = is_async(kind.function), self._batch_adapter(kind)
        if guard is not None:
            run = (sharing_batch if coroutine else sharing_batch_in_thread)(run, guard)
        limit = min(batch, self._concurrency)  # each of its tasks holds a slot
        call = run if coroutine else self._batch_in_thread(run)
        if middleware := self._app.run_middleware:
            call = around_batch(middleware, call, kind, lambda: self._state)
        return Batch(call, limit, kind.policy.batch_wait_ms / 1000)

    def _adapter(self, kind: TaskKind[..., Any]) -> Callable[..., Any]:
        """Return a function of a task, and of a connection, that returns what the kind's function does."""
        function, arguments = kind.function, _decoder(kind)

        def run(task: Task, connection: object = None) -> object:
            if kind.takes_context:
                return function(Context(task, self._state, connection), **arguments(task))
            return function(**arguments(task))

        return run

    def _batch_in_thread(self, run: Callable[..., Any]) -> BatchCall:
        async def call(tasks: Sequence[Task]) -> Sequence[BaseException | None]:
            return await in_thread(lambda _: run(tasks), self._threads)(tasks[0])  # type: ignore[return-value]

        return call

    def _batch_adapter(self, kind: TaskKind[..., Any]) -> Callable[..., Any]:
        """Return a function of several tasks, and of a connection, that calls the kind's function with their items."""
        function, arguments = kind.function, _decoder(kind)

        def decoded(
            tasks: Sequence[Task], connection: object
        ) -> tuple[list[BaseException | None], tuple[Any, ...]]:
            """Return outcomes, which are errors of payloads that do not fit, and the arguments of the call."""
            outcomes, kept, items = list[BaseException | None](), [], []
            for task in tasks:
                try:
                    items.append(arguments(task)[ITEM])
                except (ArgumentsRefused, Bury) as error:
                    outcomes.append(error)
                else:
                    outcomes.append(None)
                    kept.append(task)
            leading = (BatchContext(kept, self._state, connection),) if kind.takes_context else ()
            return outcomes, (*leading, items)

        if is_async(function):

            async def run(tasks: Sequence[Task], connection: object = None) -> list[BaseException | None]:
                outcomes, given = decoded(tasks, connection)
                return _combined(kind, outcomes, await function(*given) if given[-1] else None)

            return run

        async def combined_later(
            outcomes: list[BaseException | None], returned: Awaitable[object]
        ) -> list[BaseException | None]:
            return _combined(kind, outcomes, await returned)

        def run_plain(
            tasks: Sequence[Task], connection: object = None
        ) -> list[BaseException | None] | Awaitable[list[BaseException | None]]:
            outcomes, given = decoded(tasks, connection)
            returned = function(*given) if given[-1] else None
            if connection is None and inspect.isawaitable(returned):
                return combined_later(outcomes, returned)  # no guard: in_thread awaits it on the loop
            return _combined(kind, outcomes, run_to_its_end(returned))

        return run_plain

    def _shares(self, kind: TaskKind[..., Any]) -> bool:
        """Whether the kind, under the guard, takes its open transaction."""
        return self._transactions and kind.takes_context

    def under(self, guard: Guard[Any], coverage: Coverage = EVERY_TASK) -> HandlerCall:
        """Call the functions inside the guard's block, with the open transaction if they take one.

        HandlerSetupError for a batch under a guard that cannot hold several tasks at once.
        """
        for kind in self._app:
            if kind.name in self._routed or kind.name not in coverage:
                continue
            if kind.policy.batch is not None and not (self._shares(kind) and guard.takes_batches):
                raise HandlerSetupError(FIELD, _unguarded(kind, guard))
            if self._shares(kind):
                guard.joined(f"kind {kind.name}", coroutine=is_async(kind.function))  # type: ignore[attr-defined]  # the SQL guards can be
        self._connect(guard, coverage)
        return self.call

    def described(self) -> dict[tuple[str, int], Described]:
        """Return the arguments of each kind."""
        return {(kind.name, kind.version): described(kind) for kind in self._app}

    async def start(self) -> None:
        """Open the App's client, for tasks that schedule others, and enter its lifespan; close both if one fails."""
        async with AsyncExitStack() as stack:
            stack.callback(self._app.close)
            await stack.enter_async_context(self._app)
            if self._app.lifespan is not None:
                self._state = await stack.enter_async_context(_lifespan(self._app.lifespan()))
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


def _lifespan(returned: object) -> AbstractAsyncContextManager[Any]:
    """Return what a call of the App's lifespan has returned; HandlerSetupError if it cannot be entered."""
    if isinstance(returned, AbstractAsyncContextManager):
        return returned
    close_unawaited(returned)
    raise HandlerSetupError(
        FIELD,
        f"the App's lifespan returned a {type(returned).__name__}: expected an asynchronous context manager. Write it "
        "as an `async def` with one `yield`, under @asynccontextmanager as its outermost decorator",
    )


def _decoder(kind: TaskKind[..., Any]) -> Callable[[Task], dict[str, Any]]:
    decode = kind.codec.decode

    def arguments(task: Task) -> dict[str, Any]:
        if task.content_type != JSON_TYPE:
            raise Bury(f"task {kind.name}: expected a JSON payload, got {task.content_type}")
        try:
            return decode(task.body)
        except InvalidArguments as error:
            raise ArgumentsRefused(f"task {kind.name}: {error}") from error

    return arguments


def _combined(
    kind: TaskKind[..., Any], outcomes: list[BaseException | None], returned: object
) -> list[BaseException | None]:
    """Return the outcomes of all tasks; TypeError if the function has not returned one for each of its items."""
    if returned is None:
        return outcomes
    items, found = outcomes.count(None), f"a {type(returned).__name__}"
    if isinstance(returned, Sequence):
        wrong = [nth for nth, each in enumerate(returned) if not isinstance(each, BaseException | None)]
        found = f"{len(returned)} outcomes"
        if len(returned) == items and not wrong:
            own = iter(returned)
            return [next(own) if each is None else each for each in outcomes]
        if wrong:
            found = f"a {type(returned[wrong[0]]).__name__} for item {wrong[0]}"
    expected = f"expected None, or for each of its {items} items None or an exception"
    raise TypeError(f"task {kind.name}: what a function with batch= returns: {expected}; got {found}")


def _unguarded(kind: TaskKind[..., Any], guard: Guard[Any]) -> str:
    if not guard.takes_batches:
        why = f"has batch=, and guard {guard.name} cannot hold several tasks in one transaction"
    else:
        why = "has batch= and takes no BatchContext, so its writes are not in the guard's transaction"
    return (
        f"task {kind.name} {why}: use sqlUnique or sqlPessimistic with a BatchContext, remove batch=, or name "
        "the kinds that need the guard in spec.guard.kinds"
    )


def _delivery(kind: TaskKind[..., Any], document: Delivery) -> Delivery:
    """Return spec.delivery with what the kind decides itself."""
    policy, own = kind.policy, dict[str, Any]()
    if policy.max_attempts is not None:
        own["max_attempts"] = policy.max_attempts
    if policy.timeout_seconds is not None:
        own["handler_timeout_seconds"] = policy.timeout_seconds
    if policy.delays_seconds is not None:
        own["backoff"] = Backoff(delays_seconds=policy.delays_seconds)
    return replace(document, **own) if own else document
