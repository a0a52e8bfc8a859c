"""One kind of task: its function and arguments, and what schedules its tasks. Not here: the kinds of a queue."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import update_wrapper
from types import GenericAlias, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, ParamSpec, TypeVar

from delayq.app import app as apps
from delayq.app.arguments import Arguments, InvalidArguments, Item, arguments_of, parameters_of
from delayq.app.middleware import Scheduling, entered
from delayq.app.options import Options, check_options
from delayq.app.policy import Policy
from delayq.client.encoding import NewTask
from delayq.client.enqueue import IfExists
from delayq.client.times import moment, span_ms
from delayq.durations import Duration
from delayq.errors import InvalidTask
from delayq.protocol.envelope import JSON_TYPE, Task
from delayq.protocol.results import Cancelled, Rescheduled, Scheduled, TaskView

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
if TYPE_CHECKING:
    # Python has defaults of type variables from 3.13 on, and type checkers have them now.
    from typing_extensions import TypeVar as TypeVarWithDefault

    # Not Any: mypy checks no call of a function with Any in its first parameter, as two overloads of App.task fit then.
    StateT_co = TypeVarWithDefault("StateT_co", covariant=True, default=object)
    ConnectionT_co = TypeVarWithDefault("ConnectionT_co", covariant=True, default=object)
else:
    StateT_co, ConnectionT_co = TypeVar("StateT_co"), TypeVar("ConnectionT_co")


@dataclass(frozen=True, slots=True)
class Context(Generic[StateT_co, ConnectionT_co]):
    """What a function may take as its first parameter: the run, and what the worker holds for it.

    `Context[Pool]` types the state, `Context[Pool, AsyncConnection]` the connection, too. What has no type is `object`.
    """

    _of_batch: ClassVar[bool] = False

    task: Task
    """The task: ID, attempt, due time, headers, token."""
    state: StateT_co = None  # type: ignore[assignment]  # without a lifespan
    """What the App's lifespan yielded; None without one."""
    connection: ConnectionT_co = None  # type: ignore[assignment]  # without a SQL guard
    """The transaction of a SQL guard; None without one."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)  # which takes one argument, too


@dataclass(frozen=True, slots=True)
class BatchContext(Generic[StateT_co, ConnectionT_co]):
    """What a function with `batch=` may take as its first parameter. Its types are those of Context."""

    _of_batch: ClassVar[bool] = True

    tasks: Sequence[Task]
    """The tasks, in the order of the items."""
    state: StateT_co = None  # type: ignore[assignment]  # as in Context
    """What the App's lifespan yielded; None without one."""
    connection: ConnectionT_co = None  # type: ignore[assignment]  # as in Context
    """The transaction of a SQL guard, one for the whole call; None without one."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)


class TaskKind(Generic[P, R]):
    """One kind of task. A call runs the function itself; `schedule` stores a task that runs it later."""

    def __init__(
        self, app: apps.App, function: Callable[..., R], *, name: str, version: int, policy: Policy
    ) -> None:
        """Made by App.task; TypeError when the function cannot be a kind."""
        update_wrapper(self, function)  # first: it copies the function's own attributes, too
        where = f"task {name}"
        batch = policy.batch is not None
        self.parameters, self.takes_context = parameters_of(function, where, batch=batch)
        self.codec: Arguments = (
            Item(self.parameters[0], where) if batch else arguments_of(self.parameters, where)
        )
        self.app, self.function, self.name, self.version, self.policy = app, function, name, version, policy
        self._signature = inspect.Signature(self.parameters)

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
        **unknown: Never,
    ) -> Call[P]:
        """Return the same with these options: `await remind.options(delay="30m", id="order-7").schedule(order=7)`.

        `delay` is "30m" or a timedelta; `due` a datetime with its zone. IDs are unique for each kind.
        A task that has not started `deadline` after its due time becomes a dead letter. `debounce` implies
        if_exists="debounce": each call with the same ID replaces the waiting task, at most for this time after the
        first call.
        """
        check_options(f"task {self.name}: options", unknown, TaskKind.options)
        if debounce is not None and if_exists == "reject":
            if_exists = "debounce"
        return Call(self, Options(delay, due, id, if_exists, headers, deadline, debounce, tags))

    async def schedule(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store a task that is due now. Raises as Client.schedule, and InvalidTask for arguments that do not fit."""
        return await Call(self, Options()).schedule(*args, **kwargs)

    def schedule_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store a task that is due now, without asyncio."""
        return Call(self, Options()).schedule_sync(*args, **kwargs)

    def task(self, /, *args: P.args, **kwargs: P.kwargs) -> NewTask:
        """Return a task that is due now, for schedule_many. InvalidTask for arguments that do not fit."""
        return Call(self, Options()).task(*args, **kwargs)

    async def schedule_many(
        self, tasks: Iterable[NewTask], *, if_exists: IfExists = "reject"
    ) -> list[Scheduled]:
        """Store many tasks: `await remind.schedule_many(remind.task(order) for order in orders)`.

        See Client.schedule_many.
        """
        return await self.app.client.schedule_many(tasks, if_exists=if_exists)

    def schedule_many_sync(
        self, tasks: Iterable[NewTask], *, if_exists: IfExists = "reject"
    ) -> list[Scheduled]:
        """Store many tasks, without asyncio."""
        return self.app.sync_client.schedule_many(tasks, if_exists=if_exists)

    async def cancel(self, id: str, *, running: bool = False) -> Cancelled:  # noqa: A002 -- as in options()
        """Delete the task with this ID, which is that of options(), unless it is in flight.

        With `running`, also let the worker of a task in flight cancel its run. The result equals "cancelled",
        "cancelling", "follow_up_cancelled", "in_flight", "dead" or "not_found". See Client.cancel.
        """
        return await self.app.client.cancel(id, kind=self.name, running=running)

    def cancel_sync(self, id: str, *, running: bool = False) -> Cancelled:  # noqa: A002 -- as in options()
        """Delete the task with this ID, without asyncio."""
        return self.app.sync_client.cancel(id, kind=self.name, running=running)

    async def get(self, id: str) -> TaskView | None:  # noqa: A002 -- as in options()
        """Return all that is stored about the task with this ID; None if it is not in the queue."""
        return await self.app.client.get(id, kind=self.name)

    def get_sync(self, id: str) -> TaskView | None:  # noqa: A002 -- as in options()
        """Return all that is stored about the task with this ID, without asyncio."""
        return self.app.sync_client.get(id, kind=self.name)

    async def reschedule(
        self,
        id: str,  # noqa: A002 -- as in options()
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
    ) -> Rescheduled:
        """Change the due time of the task with this ID, unless it is running. Without a time, it is due now."""
        return await self.app.client.reschedule(id, kind=self.name, delay=delay, due=due)

    def reschedule_sync(
        self,
        id: str,  # noqa: A002 -- as in options()
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
    ) -> Rescheduled:
        """Change the due time of the task with this ID, without asyncio."""
        return self.app.sync_client.reschedule(id, kind=self.name, delay=delay, due=due)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Return the payload of a call; InvalidTask when the arguments do not fit."""
        return self.encode_named(self.named(args, kwargs))

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name; InvalidTask when the function does not take them."""
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidTask("", f"task {self.name}: {error}; it takes {self._signature}") from error

    def encode_named(self, arguments: Mapping[str, Any]) -> bytes:
        """Return the payload of arguments by name; InvalidTask when a value does not fit."""
        try:
            return self.codec.encode(arguments)
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
            reason = "schedule_many(tasks, if_exists=…) says it for all of its tasks"
            raise InvalidTask("", f"task {self.kind.name}: if_exists: {reason}; leave it out of options()")
        with self._made(args, kwargs) as task:
            return task

    def _made(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> AbstractContextManager[NewTask]:
        """Return a block with the task, inside the App's middleware."""
        if self.kind.app.schedule_middleware:
            return self._made_inside(args, kwargs)
        return nullcontext(self._task(self.kind.encode(args, kwargs), self.options.headers))

    @contextmanager
    def _made_inside(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[NewTask]:
        kind, options = self.kind, self.options
        arguments = kind.named(args, kwargs)
        try:
            headers = dict(options.headers or {})
        except (TypeError, ValueError) as error:
            raise InvalidTask(
                options.id or "", f"task {kind.name}: headers: expected a mapping of strings to strings"
            ) from error
        scheduling = Scheduling(kind, MappingProxyType(arguments), options, headers)
        with entered(kind.app.schedule_middleware, scheduling):
            yield self._task(kind.encode_named(arguments), headers or None)

    def _task(self, payload: bytes, headers: Mapping[str, str] | None) -> NewTask:
        kind, options = self.kind, self.options
        delay_ms, due_ms = moment(options.delay, options.due, task_id=options.id or "")
        deadline_ms = kind.policy.deadline_ms
        if options.deadline is not None:
            deadline_ms = span_ms(options.deadline, "deadline")
        return NewTask(
            *(payload, delay_ms, due_ms, options.id, headers, JSON_TYPE),
            *(kind.name, kind.version, deadline_ms),
            None if options.debounce is None else span_ms(options.debounce, "debounce"),
            options.tags,
        )

    async def schedule(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store the task. Raises as Client.schedule."""
        with self._made(args, kwargs) as task:
            return await self.kind.app.client.schedule(**task._asdict(), if_exists=self.options.if_exists)

    def schedule_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Scheduled:
        """Store the task, without asyncio."""
        with self._made(args, kwargs) as task:
            return self.kind.app.sync_client.schedule(**task._asdict(), if_exists=self.options.if_exists)
