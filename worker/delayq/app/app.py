"""An App: the kinds of task of one queue, and the clients that schedule them.

Not here: how a worker runs them (handlers/app.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from delayq.app.kind import TaskKind
from delayq.app.middleware import AroundRun, AroundSchedule, check
from delayq.app.options import check_options
from delayq.app.policy import Policy, policy_of
from delayq.app.schedules import ScheduleOptions, defined, for_queue
from delayq.client.aio import Client
from delayq.client.base import QueueClient
from delayq.client.blocking import SyncClient
from delayq.client.document import read
from delayq.client.recurring import ScheduleChange
from delayq.client.taken_kinds import app_of
from delayq.connection import Address
from delayq.contract import DelayQueue
from delayq.contract.schedule import DelaySchedule
from delayq.durations import Duration
from delayq.protocol.envelope import KIND_NAME, MAX_KIND_VERSION
from delayq.schedules.record import APP

if TYPE_CHECKING:
    from delayq.app.kind import BatchContext, BatchContextKind, BatchKind, Context, ContextKind

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=QueueClient)
RunMiddleware = TypeVar("RunMiddleware", bound=AroundRun)
ScheduleMiddleware = TypeVar("ScheduleMiddleware", bound=AroundSchedule)
Outcomes: TypeAlias = Sequence[BaseException | None] | None
"""What a function with `batch=` returns: for each item None (done) or an exception; None: all are done."""
B = TypeVar("B", bound="Outcomes | Awaitable[Outcomes]")
K = TypeVar("K", bound=TaskKind[..., Any])

_NAME: Final = re.compile(KIND_NAME)


class KindOptions(TypedDict, total=False):
    """The options of App.task, which explains them, without those of batches."""

    name: str | None
    version: int
    max_attempts: int | None
    timeout: Duration | None
    retry_delays: Iterable[Duration] | None
    deadline: Duration | None
    guard: bool


class Binding(NamedTuple):
    """The queue of an App: the arguments of Client.from_document."""

    document: DelayQueue | str | Path | None
    queue: str | None
    url: str | Address | None


class App:
    """The kinds of one queue. Bind it to the queue by a document, here or with bind()."""

    def __init__(
        self,
        document: DelayQueue | str | Path | None = None,
        *,
        queue: str | None = None,
        url: str | Address | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        name: str | None = None,
    ) -> None:
        """`document` is read when the first task is scheduled; `url` overrides its spec.redis.

        `queue` is the name of a queue, if the file describes several.

        `lifespan` returns an asynchronous context manager that a worker enters before the first task and leaves after
        the last one; what it yields is `Context.state`. `name` is for an App with schedules that is not the one of the
        document's spec.handler: it owns them.
        """
        self._queue, self.lifespan, self.name = Binding(document, queue, url), lifespan, name
        self._kinds: dict[tuple[str, int], TaskKind[..., Any]] = {}
        self._schedules: dict[str, tuple[TaskKind[..., Any], DelaySchedule]] = {}
        self.run_middleware: list[AroundRun] = []  # the outermost first
        self.schedule_middleware: list[AroundSchedule] = []
        self._client: Client | None = None
        self._sync_client: SyncClient | None = None  # that was bound
        self._blocks = 0  # of `async with` that are open
        self._opened: Client | None = None  # by `async with`: a client that was bound stays open
        # By schedule_sync(). Of several that threads make at once, the first one counts. No lock: a signal handler that
        # schedules would wait for the call that it interrupts.
        self._made: list[SyncClient] = []

    def __iter__(self) -> Iterator[TaskKind[..., Any]]:
        """Iterate over the kinds, in the order of their definition."""
        return iter(self._kinds.values())

    def find(self, name: str, version: int) -> TaskKind[..., Any] | None:
        """Return the kind of a task."""
        return self._kinds.get((name, version))

    @overload
    def task(self, function: Callable[Concatenate[Context[Any, Any], P], R], /) -> ContextKind[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskKind[P, R]: ...
    @overload
    def task(self, function: None = ..., /, **options: Unpack[KindOptions]) -> Decorator: ...
    @overload
    def task(
        self,
        function: None = ...,
        /,
        *,
        batch: int,
        batch_wait: Duration | None = ...,
        **options: Unpack[KindOptions],
    ) -> BatchDecorator: ...
    def task(  # noqa: PLR0913 -- one parameter for each property of a kind
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        retry_delays: Iterable[Duration] | None = None,
        batch: int | None = None,
        batch_wait: Duration | None = None,
        deadline: Duration | None = None,
        guard: bool = False,
        **unknown: Never,
    ) -> Any:
        """Make a function a kind of task: `@app.task`, or `@app.task(max_attempts=8, timeout="2m")`.

        `name` is the function's by default. A new `version` separates tasks whose arguments changed: a worker runs
        only tasks of versions that it has. `retry_delays` are the waits after the first failure, the second, …; the
        last one repeats. A task does not start later than `deadline` after its due time. What is not given is as in
        spec.delivery. `guard=True` runs the tasks under the document's guard also if spec.guard.kinds does not name
        the kind. TypeError or ValueError for what cannot be a kind. A function of the same module and qualified name
        replaces the earlier one: a notebook cell that runs again, a module that is loaded again.

        With `batch`, the function takes a list of up to so many items, each of them a task of its own, and returns
        None or for each item None or an exception. A call does not wait until it is full, or at most `batch_wait`.
        """
        check_options("@app.task", unknown, App.task)
        if isinstance(function, str):
            raise TypeError(f"@app.task takes its name as name={function!r:.80}")
        policy = policy_of(
            max_attempts,
            timeout,
            retry_delays,
            deadline=deadline,
            batch=batch,
            batch_wait=batch_wait,
            guard=guard,
        )

        def add(function: Callable[..., Any]) -> TaskKind[..., Any]:
            return self._add(function, name=name, version=version, policy=policy)

        return add if function is None else add(function)

    def _add(
        self, function: Callable[..., Any], *, name: str | None, version: int, policy: Policy
    ) -> TaskKind[..., Any]:
        if name is None:
            name = getattr(function, "__name__", "")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            expected = "expected 1 to 64 letters, digits, _, . and -, the first a letter, a digit or _"
            raise ValueError(f"task name: {expected}, got {name!r:.80}")
        if type(version) is not int or not 1 <= version <= MAX_KIND_VERSION:
            raise ValueError(f"task {name}: version: expected 1 to {MAX_KIND_VERSION}, got {version!r:.60}")
        if isinstance(function, TaskKind):
            raise TypeError(f"task {name}: {function} is a task already")
        known = self.find(name, version)
        if known is not None and not _same(known.function, function):
            raise ValueError(f"task {name} version {version} is defined already: {known}")
        made: TaskKind[..., Any] = TaskKind(self, function, name=name, version=version, policy=policy)
        self._kinds[name, version] = made
        # The decorators above define again what is still there.
        self._schedules = {key: each for key, each in self._schedules.items() if each[0] is not known}
        return made

    def around_run(self, middleware: RunMiddleware, /) -> RunMiddleware:
        """Surround each run of a function with a context manager: `@app.around_run` above `@contextmanager`.

        `middleware` takes a TaskRun and returns a context manager, asynchronous or not, that is entered on the event
        loop. The first one that is added is outermost. Context variables that it sets are visible in the function,
        also in the thread of a plain one. What the run raises is raised in the block, and the block cannot suppress it.
        An exception of middleware is a failure of the task; Retry, Bury and Seen mean the same as in the function.
        """
        check(middleware, "around_run")
        _add_middleware(self.run_middleware, middleware)
        return middleware

    def around_schedule(self, middleware: ScheduleMiddleware, /) -> ScheduleMiddleware:
        """Surround each call that schedules a task of a kind with a context manager: `@app.around_schedule`.

        `middleware` takes a Scheduling and returns a context manager, which must not be asynchronous. The first one
        that is added is outermost. It may add `headers`, which travel with the task. It surrounds `schedule`,
        `schedule_sync`, and `task`, which makes tasks for schedule_many: there, the block ends before the task is
        stored. An exception reaches the caller: before the block the task is not stored, after it the task is stored.
        """
        check(middleware, "around_schedule")
        _add_middleware(self.schedule_middleware, middleware)
        return middleware

    def schedule(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        time_zone: str | None = None,
        name: str | None = None,
        payload: object = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[K], K]:
        """Let a kind of task recur: `@app.schedule(cron="0 2 * * *", time_zone="Europe/Lisbon")`, above `@app.task`.

        `cron` has five fields, or is `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`, in `time_zone`, by
        default UTC. Instead of it, `every` is a fixed interval of whole seconds. `payload` has the arguments of the
        function by name; of a kind with `batch`, it is one item. `name` is that of the DelaySchedule, by default the
        kind's: several schedules of one kind need names. Further options are the fields of a DelaySchedule: `headers`,
        `tags`, `deadline` (by default that of the kind), `jitter`, `start_time`, `end_time`, `suspend`,
        `concurrency_policy` ("Forbid"), `misfire` ("Skip"), `max_lateness` and `max_runs`. ValueError for what cannot
        be a schedule, or does not fit the function.

        Nothing is stored by this: `delayq run` stores the schedules of its App at its start, elsewhere
        apply_schedules() or the command `delayq cron apply` does.
        """
        given = {"cron": cron, "every": every, "time_zone": time_zone, "name": name, "payload": payload}

        def add(kind: K) -> K:
            if not isinstance(kind, TaskKind):
                raise TypeError(
                    "@app.schedule belongs above @app.task, which makes the function a kind of task"
                )
            if kind.app is not self:
                raise ValueError(f"schedule of task {kind.name}: the task belongs to another App")
            schedule = defined(kind, {**given, **options})
            key = schedule.metadata.name
            if key in self._schedules:
                other = self._schedules[key][0]
                raise ValueError(
                    f"schedule {key} of task {kind.name}: task {other.name} has a schedule of this name; set name="
                )
            self._schedules[key] = kind, schedule
            return kind

        return add

    def schedule_documents(self, queue: str) -> list[DelaySchedule]:
        """Return the schedules as DelaySchedule documents, in the order of their names; `queue`: of their queueRef."""
        return [for_queue(self._schedules[name][1], queue) for name in sorted(self._schedules)]

    def schedule_owner(self, path: str) -> str:
        """Return who owns the schedules in Redis; `path` is that of the App in its document, such as shop.tasks:app."""
        return f"{APP}{self.name or path}"

    async def apply_schedules(self) -> dict[str, ScheduleChange]:
        """Store the schedules of @app.schedule in the queue, and delete those that this App has no more.

        Call it once for each release, not in each process: of two versions of the App, the last call counts. Returns
        what became of each schedule, by name. ScheduleRefused names those that belong to another owner, or do not fit
        into the queue; all others are stored. RuntimeError if the App is not that of the document and has no name.
        """
        return await self.client.sync_schedules(self._own_schedules(), owner=self._owner())

    def apply_schedules_sync(self) -> dict[str, ScheduleChange]:
        """Store the schedules of @app.schedule in the queue, without asyncio."""
        return self.sync_client.sync_schedules(self._own_schedules(), owner=self._owner())

    def _own_schedules(self) -> list[DelaySchedule]:
        document = self._read()
        client = self._sync_client or self._client
        queue = document.metadata.name if document else client.queue if client else ""
        return self.schedule_documents(queue)

    def _owner(self) -> str:
        document = self._read()
        path = document.spec.handler.python.app if document and document.spec.handler.python else None
        if self.name is None and (path is None or app_of(path) is not self):
            found = f"the App of its document is {path}, which is not this one in this process"
            why = found if path else "no document names this App in spec.handler"
            raise RuntimeError(f"the schedules of an App need an owner: {why}; give it a name, App(name=…)")
        return self.schedule_owner(path or "")

    def _read(self) -> DelayQueue | None:
        document, queue, _ = self._queue
        return document if document is None or isinstance(document, DelayQueue) else read(document, queue)

    def bind(self, client: Client | SyncClient) -> Self:
        """Schedule with this client, which the caller opens and closes."""
        if isinstance(client, SyncClient):
            self._sync_client = client
        else:
            self._client = client
        return self

    def bind_document(
        self,
        document: DelayQueue | str | Path | None,
        *,
        queue: str | None = None,
        url: str | Address | None = None,
    ) -> Self:
        """Schedule into the queue of this document; None: unbind it. A worker binds the App to its own queue.

        Another document closes the client of schedule_sync() and drops clients of bind(). RuntimeError inside
        `async with app`, which has a client open for the earlier document.
        """
        binding = Binding(document, queue, url)
        if binding != self._queue:
            if self._opened is not None:
                raise RuntimeError(
                    "this App is open: leave `async with app` before it is bound to another queue"
                )
            self.close()
            self._queue = binding
            self._client = self._sync_client = None
        return self

    @contextmanager
    def bound_to(
        self,
        document: DelayQueue | str | Path,
        *,
        queue: str | None = None,
        url: str | Address | None = None,
    ) -> Iterator[Self]:
        """Schedule into the queue of this document inside the block, and then as before."""
        self.close()
        before = self._queue, self._client, self._sync_client
        self.bind_document(document, queue=queue, url=url)
        try:
            yield self
        finally:
            self.bind_document(None)
            self._queue, self._client, self._sync_client = before

    @property
    def client(self) -> Client:
        """The client of schedule(), inside `async with app`."""
        if self._client is None:
            raise RuntimeError(
                "this App is not open: use it inside `async with app`, or bind() an open Client"
            )
        return self._client

    @property
    def sync_client(self) -> SyncClient:
        """The client of schedule_sync(), made with the first call."""
        if self._sync_client is not None:
            return self._sync_client
        made = self._made
        if not made:
            made.append(self._made_by(SyncClient).open())
        return made[0]

    async def __aenter__(self) -> Self:
        """Open a client for the document's queue. Blocks may be nested."""
        if self._client is None:
            self._client = self._opened = self._made_by(Client)
        if self._opened is not None:
            await self._opened.open()  # again after a fork, or in another event loop
        self._blocks += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client that `async with` has opened, with the outermost block."""
        self._blocks -= 1
        if self._blocks > 0 or self._opened is None:
            return
        opened, self._opened = self._opened, None
        self._client = None if self._client is opened else self._client
        await opened.close()

    def close(self) -> None:
        """Close the client that schedule_sync() has made."""
        made, self._made = self._made, []
        for each in made:
            each.close()

    def _made_by(self, of: type[C]) -> C:
        document, queue, url = self._queue
        if document is None:
            raise RuntimeError("this App has no queue: App(document), or bind() a client")
        return of.from_document(document, queue=queue, url=url)


def _same(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether both are one definition. Functions in `<locals>`, and lambdas, can share a name and differ."""
    name = getattr(function, "__qualname__", "<")
    return (
        "<" not in name
        and name == getattr(known, "__qualname__", None)
        and function.__module__ == known.__module__
    )


def _add_middleware(known: list[Any], middleware: Callable[..., Any]) -> None:
    """Add it at the end, or in the place of an earlier definition: a notebook cell that runs again."""
    owner = getattr(middleware, "__self__", None)  # of a method: each object is middleware of its own
    for at, each in enumerate(known):
        if _same(each, middleware) and getattr(each, "__self__", None) is owner:
            known[at] = middleware
            return
    known.append(middleware)


class Decorator(Protocol):
    """What `@app.task(…)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context[Any, Any], P], R], /) -> ContextKind[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskKind[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make the function a kind."""


class BatchDecorator(Protocol):
    """What `@app.task(batch=…)` returns."""

    @overload
    def __call__(
        self, function: Callable[[BatchContext[Any, Any], list[T]], B], /
    ) -> BatchContextKind[T, B]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], B], /) -> BatchKind[T, B]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make the function a kind."""
