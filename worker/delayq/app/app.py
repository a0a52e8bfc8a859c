"""An App: functions as kinds of task, and what schedules them.

Not here: how a worker runs them (handlers/app.py).
"""

from __future__ import annotations

import inspect
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from delayq.app.arguments import Arguments, InvalidArguments, Item, arguments_of, parameters_of
from delayq.app.options import Duration, Options, milliseconds
from delayq.app.policy import Policy, policy_of
from delayq.client.aio import Client
from delayq.client.blocking import SyncClient
from delayq.client.encoding import NewTask
from delayq.errors import InvalidTask
from delayq.protocol.envelope import JSON_TYPE, KIND_NAME, MAX_KIND_VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from delayq.client.enqueue import IfExists
    from delayq.connection import Address
    from delayq.contract import DelayQueue
    from delayq.protocol.envelope import Task
    from delayq.protocol.results import Scheduled

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Outcomes: TypeAlias = "Sequence[BaseException | None] | None"
"""What a function with `batch=` returns: for each item None (done) or an exception; None: all are done."""
B = TypeVar("B", bound="Outcomes | Awaitable[Outcomes]")

_NAME: Final = re.compile(KIND_NAME)


@dataclass(frozen=True, slots=True)
class Context:
    """What a function may take as its first parameter: the run, and what the worker holds for it."""

    IS_CONTEXT: ClassVar[bool] = True
    OF_BATCH: ClassVar[bool] = False

    task: Task
    """The task: ID, attempt, due time, headers, token."""
    state: Any = None
    """What the App's lifespan yielded; None without one."""
    connection: Any = None
    """The transaction of a SQL guard; None without one."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a function with `batch=` may take as its first parameter."""

    IS_CONTEXT: ClassVar[bool] = True
    OF_BATCH: ClassVar[bool] = True

    tasks: Sequence[Task]
    """The tasks, in the order of the items."""
    state: Any = None
    """What the App's lifespan yielded; None without one."""
    connection: Any = None
    """The transaction of a SQL guard, one for the whole call; None without one."""


class TaskKind(Generic[P, R]):
    """One kind of task. A call runs the function itself; `schedule` stores a task that runs it later."""

    def __init__(
        self, app: App, function: Callable[..., R], *, name: str, version: int, policy: Policy
    ) -> None:
        """Made by App.task; TypeError when the function cannot be a kind."""
        update_wrapper(self, function)  # first: it copies the function's own attributes, too
        where = f"task {name}"
        batch = policy.batch is not None
        parameters, self.takes_context = parameters_of(function, where, batch=batch)
        self.arguments: Arguments = Item(parameters[0], where) if batch else arguments_of(parameters, where)
        self.app, self.function, self.name, self.version, self.policy = app, function, name, version, policy
        self._signature = inspect.Signature(parameters)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as in a unit test; nothing is scheduled."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Name the kind, its version and its function."""
        return f"<task {self.name} version {self.version}: {self.function.__module__}.{self.function.__qualname__}>"

    def options(
        self,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        id: str | None = None,  # noqa: A002 -- what users call it
        if_exists: IfExists = "reject",
        headers: Mapping[str, str] | None = None,
        deadline: Duration | None = None,
        debounce: Duration | None = None,
        tags: Sequence[str] | None = None,
    ) -> Call[P]:
        """Return the same with these options: `await remind.options(delay="30m", id="order-7").schedule(order=7)`.

        `delay` is "30m", a timedelta or whole seconds; `due` a datetime with its zone. IDs are unique for each kind.
        A task that has not started `deadline` after its due time becomes a dead letter. `debounce` implies
        if_exists="debounce": calls with the same ID replace a task that waits, until so long after the first of them.
        """
        if debounce is not None and if_exists == "reject":
            if_exists = "debounce"
        return Call(self, Options(delay, due, id, if_exists, headers, deadline, debounce, tags))

    async def schedule(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store a task that is due now. Raises as Client.schedule, and InvalidTask for arguments that do not fit."""
        return await Call(self, Options()).schedule(*args, **kwargs)

    def schedule_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store a task that is due now, without asyncio."""
        return Call(self, Options()).schedule_sync(*args, **kwargs)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload of a call; InvalidTask when the arguments do not fit."""
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidTask("", f"task {self.name}: {error}; it takes {self._signature}") from error
        try:
            return self.arguments.encode(given)
        except InvalidArguments as error:
            raise InvalidTask("", f"task {self.name}: {error}") from error


if TYPE_CHECKING:

    class ContextKind(TaskKind[P, R]):
        """A kind whose function takes a Context, which a direct call has to give."""

        def __call__(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
            """Call the function here and now."""

    class BatchKind(TaskKind[[T], R], Generic[T, R]):
        """A kind with `batch=`: a task is scheduled with one item, and a call takes a list of them."""

        def __call__(self, items: list[T], /) -> R:  # type: ignore[override]
            """Call the function here and now."""

    class BatchContextKind(BatchKind[T, R]):
        """The same, with a BatchContext, which a direct call has to give."""

        def __call__(self, context: BatchContext, items: list[T], /) -> R:  # type: ignore[override]
            """Call the function here and now."""


@dataclass(frozen=True, slots=True)
class Call(Generic[P]):
    """A kind with options."""

    kind: TaskKind[P, Any]
    options: Options = field(default_factory=Options)

    def task(self, /, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Return the task as schedule_many takes it. InvalidTask when the arguments or the options do not fit."""
        # `debounce` implies "debounce"; schedule_many has to say the same, or it refuses the task.
        if self.options.if_exists not in ("reject", "debounce"):
            told = "schedule_many(tasks, if_exists=…) says it for all of its tasks"
            raise InvalidTask("", f"task {self.kind.name}: if_exists: {told}; leave it out of options()")
        return self._task(*args, **kwargs)

    def _task(self, /, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        kind, options = self.kind, self.options
        if options.id is not None and (type(options.id) is not str or not options.id):
            expected = "expected a string that is not empty"
            raise InvalidTask("", f"task {kind.name}: id: {expected}, got {options.id!r:.60}")
        task_id = None if options.id is None else f"{kind.name}:{options.id}"
        delay_ms, due_ms = options.moment()
        deadline_ms = kind.policy.deadline_ms
        if options.deadline is not None:
            deadline_ms = milliseconds(options.deadline, "deadline")
        return NewTask(
            *(kind.encode(args, kwargs), delay_ms, due_ms, task_id, options.headers, JSON_TYPE),
            *(kind.name, kind.version, deadline_ms),
            None if options.debounce is None else milliseconds(options.debounce, "debounce"),
            options.tags,
        )

    async def schedule(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store the task. Raises as Client.schedule."""
        task = self._task(*args, **kwargs)
        return await self.kind.app.client.schedule(**task._asdict(), if_exists=self.options.if_exists)

    def schedule_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store the task, without asyncio."""
        task = self._task(*args, **kwargs)
        return self.kind.app.sync_client.schedule(**task._asdict(), if_exists=self.options.if_exists)


class App:
    """The kinds of one queue. Bind it to the queue by a document, here or with bind()."""

    def __init__(
        self,
        document: DelayQueue | str | Path | None = None,
        *,
        url: str | Address | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        """`document` is read when the first task is scheduled; `url` overrides its spec.redis.

        `lifespan` returns an asynchronous context manager that a worker enters before the first task and leaves after
        the last one; what it yields is `Context.state`.
        """
        self._document, self._url, self.lifespan = document, url, lifespan
        self._kinds: dict[tuple[str, int], TaskKind[..., Any]] = {}
        self._client: Client | None = None
        self._sync_client: SyncClient | None = None
        self._blocks = 0  # of `async with` that are open
        self._opened: Client | None = None  # by `async with`: a client that was bound stays open
        self._made: SyncClient | None = None  # the same, by schedule_sync()
        self._lock = threading.Lock()  # threads may make the first call at once

    def __iter__(self) -> Iterator[TaskKind[..., Any]]:
        """Iterate over the kinds, in the order of their definition."""
        return iter(self._kinds.values())

    def find(self, name: str, version: int) -> TaskKind[..., Any] | None:
        """Return the kind of a task."""
        return self._kinds.get((name, version))

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> ContextKind[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskKind[P, R]: ...
    @overload
    def task(
        self,
        function: None = ...,
        /,
        *,
        name: str | None = ...,
        version: int = ...,
        max_attempts: int | None = ...,
        timeout: Duration | None = ...,
        retry_delays: Iterable[Duration] | None = ...,
        deadline: Duration | None = ...,
    ) -> Decorator: ...
    @overload
    def task(
        self,
        function: None = ...,
        /,
        *,
        batch: int,
        batch_wait: Duration | None = ...,
        name: str | None = ...,
        version: int = ...,
        max_attempts: int | None = ...,
        timeout: Duration | None = ...,
        retry_delays: Iterable[Duration] | None = ...,
        deadline: Duration | None = ...,
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
    ) -> Any:
        """Make a function a kind of task: `@app.task`, or `@app.task(max_attempts=8, timeout="2m")`.

        `name` is the function's by default. A new `version` separates tasks whose arguments changed: a worker runs
        only tasks of versions that it knows. `retry_delays` are the waits after the first failure, the second, …; the
        last one repeats. A task does not start later than `deadline` after its due time. What is not given is as in
        spec.delivery. TypeError or ValueError for what cannot be a kind.

        With `batch`, the function takes a list of up to so many items, each of them a task of its own, and returns
        None or for each item None or an exception. A call does not wait until it is full, or at most `batch_wait`.
        """
        if isinstance(function, str):
            raise TypeError(f"@app.task takes its name as name={function!r:.80}")
        policy = policy_of(
            max_attempts, timeout, retry_delays, deadline=deadline, batch=batch, batch_wait=batch_wait
        )

        def add(function: Callable[..., Any]) -> TaskKind[..., Any]:
            kind_name = getattr(function, "__name__", "") if name is None else name
            if not isinstance(kind_name, str) or not _NAME.fullmatch(kind_name):
                expected = "expected 1 to 64 letters, digits, _, . and -, the first a letter, a digit or _"
                raise ValueError(f"task name: {expected}, got {kind_name!r:.80}")
            if type(version) is not int or not 1 <= version <= MAX_KIND_VERSION:
                raise ValueError(
                    f"task {kind_name}: version: expected 1 to {MAX_KIND_VERSION}, got {version!r:.60}"
                )
            if (kind_name, version) in self._kinds:
                raise ValueError(
                    f"task {kind_name} version {version} is defined already: {self._kinds[kind_name, version]}"
                )
            if isinstance(function, TaskKind):
                raise TypeError(f"task {kind_name}: {function} is a task already")
            kind: TaskKind[..., Any] = TaskKind(
                self, function, name=kind_name, version=version, policy=policy
            )
            self._kinds[kind_name, version] = kind
            return kind

        return add if function is None else add(function)

    def bind(self, client: Client | SyncClient) -> Self:
        """Schedule with this client, which the caller opens and closes."""
        if isinstance(client, SyncClient):
            self._sync_client = client
        else:
            self._client = client
        return self

    def bind_document(
        self, document: DelayQueue | str | Path | None, *, url: str | Address | None = None
    ) -> Self:
        """Schedule into the queue of this document, None: of no one. A worker binds the App to its own queue.

        Another document closes the client of schedule_sync() and drops clients of bind(). RuntimeError inside
        `async with app`, which has a client open for the earlier document.
        """
        if (document, url) != (self._document, self._url):
            if self._opened is not None:
                raise RuntimeError(
                    "this App is open: leave `async with app` before it is bound to another queue"
                )
            self.close()
            self._document, self._url = document, url
            self._client = self._sync_client = None
        return self

    @contextmanager
    def bound_to(
        self, document: DelayQueue | str | Path, *, url: str | Address | None = None
    ) -> Iterator[Self]:
        """Schedule into the queue of this document inside the block, and then as before."""
        self.close()
        before = self._document, self._url, self._client, self._sync_client
        self.bind_document(document, url=url)
        try:
            yield self
        finally:
            self.bind_document(None)
            self._document, self._url, self._client, self._sync_client = before

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
        with self._lock:
            if self._sync_client is None:
                made = SyncClient.from_document(self._bound(), url=self._url).open()
                self._sync_client = self._made = made
            return self._sync_client

    async def __aenter__(self) -> Self:
        """Open a client for the document's queue. Blocks may be nested."""
        if self._client is None:
            self._client = self._opened = Client.from_document(self._bound(), url=self._url)
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
        made, self._made = self._made, None
        if made is not None:
            self._sync_client = None if self._sync_client is made else self._sync_client
            made.close()

    def _bound(self) -> DelayQueue | str | Path:
        if self._document is None:
            raise RuntimeError("this App has no queue: App(document), or bind() a client")
        return self._document


class Decorator(Protocol):
    """What `@app.task(…)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextKind[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskKind[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make the function a kind."""


class BatchDecorator(Protocol):
    """What `@app.task(batch=…)` returns."""

    @overload
    def __call__(self, function: Callable[[BatchContext, list[T]], B], /) -> BatchContextKind[T, B]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], B], /) -> BatchKind[T, B]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Make the function a kind."""
