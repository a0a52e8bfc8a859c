"""Middleware of an App: what it sees of runs and of scheduling, its order, and what it cannot change."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping  # noqa: TC003 -- annotations that are read
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import App, Bury, Context, InvalidTask, Retry, Scheduling, Seen, TaskExists, TaskRun
from delayq.handlers.app import AppHandler
from delayq.protocol.results import Lease

from tests.unit.handlers.support import a_task, document
from tests.unit.worker.support import Worker

if TYPE_CHECKING:
    from delayq.app.middleware import AroundRun
    from delayq.protocol.envelope import Task
    from delayq.testing import Queue
    from delayq.worker.settlements import Settlement

QUEUE = document({"python": {"app": "shop:app"}}, worker={"concurrency": 50}, delivery={"maxAttempts": 3})
WHERE: ContextVar[str] = ContextVar("where", default="outside")


class Notes:
    """Middleware that writes down what it sees."""

    def __init__(self, name: str = "") -> None:
        self.name, self.seen, self.runs = name, list[str](), list[TaskRun]()

    @contextmanager
    def plain(self, run: TaskRun) -> Iterator[None]:
        self.runs.append(run)
        self.seen.append(f"{self.name}+")
        try:
            yield
        except BaseException as error:
            self.seen.append(f"{self.name}: {type(error).__name__}")
            raise
        self.seen.append(f"{self.name}-")

    @asynccontextmanager
    async def on_loop(self, run: TaskRun) -> AsyncIterator[None]:
        with self.plain(run):
            await asyncio.sleep(0)
            yield


def claims(app: App, *tasks: Task) -> Worker:
    """A worker of the App that has claimed these tasks."""
    handler = AppHandler(app, QUEUE)
    worker = Worker(QUEUE, handler.call, handler.kinds, handler.batches)
    worker.claimed(*(Lease(each, 0, f"{each.id}:41".encode(), 0) for each in tasks))
    return worker


def named(kind: str, body: bytes = b"{}", task_id: str = "order-7") -> Task:
    return replace(a_task(body, task_id=task_id), kind=kind, kind_version=1)


async def settlement(function: Callable[..., Any], *middleware: AroundRun) -> Settlement:
    """How the one task of a kind with this function ends."""
    app = App()
    app.task(name="call")(function)
    for each in middleware:
        app.around_run(each)
    [settled] = await claims(app, named("call")).settled()
    return settled


def error_of(settled: Settlement) -> str:
    assert settled.verb in ("retry", "bury"), settled
    return str(settled.arguments[-1])


async def test_the_first_one_is_outermost_whether_it_is_asynchronous_or_not() -> None:
    first, second, third = Notes("1"), Notes("2"), Notes("3")
    second.seen = third.seen = first.seen

    def call() -> None:
        first.seen.append("call")

    done = await settlement(call, first.plain, second.on_loop, third.plain)
    assert done.verb == "ack"
    assert first.seen == ["1+", "2+", "3+", "call", "3-", "2-", "1-"]


async def test_it_sees_the_kind_and_the_task() -> None:
    notes, app = Notes(), App()

    @app.task
    async def remind(order: int) -> None: ...

    app.around_run(notes.plain)
    task = replace(named("remind", b'{"order": 7}'), headers={"trace": "1"}, tags=("paris",))
    await claims(app, task).settled()
    [run] = notes.runs
    assert (run.kind, list(run.tasks), run.outcomes) == (remind, [task], ())
    [seen] = run.tasks
    assert (seen.payload, seen.attempt, seen.due_ms, seen.headers) == (
        {"order": 7},
        2,
        1_700_000_060_000,
        {"trace": "1"},
    )


async def test_it_sees_what_the_lifespan_yielded() -> None:
    notes = Notes()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "pool"

    app = App(lifespan=lifespan)
    app.task(name="call")(lambda: None)
    app.around_run(notes.plain)
    handler = AppHandler(app, QUEUE)
    await handler.start()
    await handler.call(named("call"))
    await handler.close()
    assert [run.state for run in notes.runs] == ["pool"]


@pytest.mark.parametrize("style", ["plain", "on_loop"])
async def test_a_context_variable_is_visible_in_a_coroutine_and_in_a_thread(style: str) -> None:
    @contextmanager
    def plain(_: TaskRun) -> Iterator[None]:
        token = WHERE.set("inside")
        yield
        WHERE.reset(token)

    @asynccontextmanager
    async def on_loop(run: TaskRun) -> AsyncIterator[None]:
        with plain(run):
            yield

    seen = []

    async def coroutine() -> None:
        seen.append(WHERE.get())
        seen.append(await asyncio.to_thread(WHERE.get))

    def function() -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(WHERE.get())

    middleware: AroundRun = plain if style == "plain" else on_loop
    for each in (coroutine, function):
        assert (await settlement(each, middleware)).verb == "ack"
    assert seen == ["inside"] * 3
    assert WHERE.get() == "outside"


@pytest.mark.parametrize(
    ("raised", "verb"),
    [(Retry("later"), "retry"), (Bury("never"), "bury"), (KeyError("order"), "retry")],
    ids=["retry", "bury", "failure"],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_exception_of_the_function_is_raised_in_the_block_and_decides(
    raised: Exception, verb: str, *, in_thread: bool
) -> None:
    def function() -> None:
        raise raised

    async def coroutine() -> None:
        raise raised

    notes = Notes("1")
    call = function if in_thread else coroutine
    settled, bare = await settlement(call, notes.plain, notes.on_loop), await settlement(call)
    name = type(raised).__name__
    assert notes.seen == ["1+", "1+", f"1: {name}", f"1: {name}"]
    assert (settled.verb, error_of(settled)) == (verb, error_of(bare))


async def test_what_is_raised_cannot_be_suppressed() -> None:
    """Neither a failure nor a cancellation becomes a success, and middleware further out sees it."""

    class Suppressing(nullcontext[None]):
        def __exit__(self, *_: object) -> bool:  # type: ignore[override]
            return True

    async def call() -> None:
        raise KeyError("order")

    notes = Notes("1")
    settled = await settlement(call, notes.plain, lambda _: Suppressing())
    assert "KeyError: 'order'" in error_of(settled)
    assert notes.seen == ["1+", "1: KeyError"]

    begun, app = asyncio.Event(), App()

    @app.task(name="call")
    async def sleep() -> None:
        begun.set()
        await asyncio.Event().wait()

    app.around_run(notes.plain)
    app.around_run(lambda _: Suppressing())
    worker = claims(app, named("call"))
    await begun.wait()
    [running] = worker.slots.running.values()
    running.cancel("timeout")
    [cancelled] = await worker.settled()
    assert "TimeoutError: task ran longer than" in error_of(cancelled)
    assert notes.seen[2:] == ["1+", "1: CancelledError"]


async def test_a_thread_that_outlives_its_time_is_seen_as_a_cancellation() -> None:
    begun, end, app, notes = threading.Event(), threading.Event(), App(), Notes("1")

    @app.task(name="call")
    def block() -> None:
        begun.set()
        end.wait(20)

    app.around_run(notes.on_loop)
    worker = claims(app, named("call"))
    await asyncio.to_thread(begun.wait, 20)
    [running] = worker.slots.running.values()
    running.cancel("timeout")
    [cancelled] = await worker.settled()
    end.set()
    assert "TimeoutError" in error_of(cancelled)
    assert notes.seen == ["1+", "1: CancelledError"]


@pytest.mark.parametrize("when", ["when called", "before", "after", "instead"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_exception_of_middleware_is_a_failure_that_names_it(
    when: str, *, asynchronous: bool
) -> None:
    @contextmanager
    def plain() -> Iterator[None]:
        if when == "before":
            raise ValueError(when)
        try:
            yield
        finally:
            raise ValueError(when)

    @asynccontextmanager
    async def on_loop() -> AsyncIterator[None]:
        with plain():
            yield

    def broken(_: TaskRun) -> Any:  # noqa: ANN401 -- a context manager
        if when == "when called":
            raise ValueError(when)
        return on_loop() if asynchronous else plain()

    notes, ran = Notes("1"), []

    async def call() -> None:
        ran.append(1)
        if when == "instead":
            raise KeyError("order")

    settled = await settlement(call, notes.plain, broken)
    assert f".broken raised ValueError: {when}" in error_of(settled)
    assert error_of(settled).startswith("RuntimeError: middleware ")
    assert notes.seen == ["1+", "1: RuntimeError"]
    assert ran == ([1] if when in ("after", "instead") else [])


@pytest.mark.parametrize(
    ("raised", "verb"), [(Retry("closed"), "retry"), (Bury("closed"), "bury"), (Seen("x"), "ack")]
)
async def test_middleware_decides_as_a_function_does(raised: Exception, verb: str) -> None:
    @contextmanager
    def closed(_: TaskRun) -> Iterator[None]:
        raise raised
        yield

    async def call() -> None:
        raise AssertionError("it does not run")

    settled = await settlement(call, closed)
    assert settled.verb == verb
    if verb != "ack":
        assert error_of(settled).startswith("closed")


async def test_what_is_no_context_manager_fails_the_task_and_says_so() -> None:
    async def call() -> None: ...

    def middleware(_: TaskRun) -> Any:  # noqa: ANN401 -- what a mistake returns
        return None

    settled = await settlement(call, middleware)
    assert ".middleware raised TypeError: " in (error := error_of(settled))
    assert "NoneType' object does not support the context manager protocol" in error


async def test_an_awaitable_of_a_plain_decorator_runs_inside() -> None:
    seen = []

    async def call() -> None:
        await asyncio.sleep(0)
        seen.append(WHERE.get())

    @functools.wraps(call)
    def decorated() -> Any:  # noqa: ANN401 -- any decorator's
        return call()

    @contextmanager
    def inside(_: TaskRun) -> Iterator[None]:
        token = WHERE.set("inside")
        yield
        WHERE.reset(token)

    assert (await settlement(decorated, inside)).verb == "ack"
    assert seen == ["inside"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_batch_is_one_run_with_an_outcome_for_each_task(*, in_thread: bool) -> None:
    notes, app, seen = Notes("1"), App(), []

    def function(numbers: list[int]) -> list[Exception | None]:
        seen.append((sorted(numbers), WHERE.get()))
        return [KeyError("odd") if number % 2 else None for number in numbers]

    async def coroutine(numbers: list[int]) -> list[Exception | None]:
        return function(numbers)

    @contextmanager
    def inside(run: TaskRun) -> Iterator[None]:
        token = WHERE.set("inside")
        for field in ("tasks", "outcomes"):
            with pytest.raises(FrozenInstanceError):
                setattr(run, field, ())
        yield
        WHERE.reset(token)

    kind = app.task(name="call", batch=10)(function if in_thread else coroutine)
    app.around_run(notes.on_loop)
    app.around_run(inside)
    seen_outcomes: list[BaseException | None] = []

    @app.around_run
    @contextmanager
    def outcomes(run: TaskRun) -> Iterator[None]:
        yield
        seen_outcomes.extend(run.outcomes)

    worker = claims(app, *(named("call", b"%d" % n, str(n)) for n in range(3)))
    verbs = {each.lease.task.id: each.verb for each in await worker.settled()}
    assert verbs == {"0": "ack", "1": "retry", "2": "ack"}
    assert [str(each) for each in seen_outcomes] == ["None", "'odd'", "None"]
    assert seen == [([0, 1, 2], "inside")]
    [run] = notes.runs
    assert (run.kind, [task.id for task in run.tasks]) == (kind, ["0", "1", "2"])
    assert notes.seen == ["1+", "1-"]


async def test_a_batch_that_middleware_refuses_fails_as_a_whole() -> None:
    app, ran = App(), []

    @app.task(name="call", batch=10)
    async def call(numbers: list[int]) -> None:
        ran.append(numbers)

    @app.around_run
    @contextmanager
    def broken(_: TaskRun) -> Iterator[None]:
        raise OSError("away")
        yield

    settled = await claims(app, named("call", b"1", "1"), named("call", b"2", "2")).settled()
    assert [each.verb for each in settled] == ["retry", "retry"]
    assert all(".broken raised OSError: away" in error_of(each) for each in settled)
    assert ran == []


def test_without_middleware_the_calls_are_those_of_before() -> None:
    """Nothing is wrapped: what the worker awaits is the code of the App's adapter itself."""
    app, other = App(), App()
    for each in (app, other):
        each.task(name="one")(_one)
        each.task(name="many", batch=2)(_many)
    other.around_run(Notes().plain)
    bare, inside = AppHandler(app, QUEUE), AppHandler(other, QUEUE)
    assert bare._calls["one", 1].__module__ == "delayq.handlers.app"
    assert bare.batches["many", 1].call.__module__ == "delayq.handlers.app"
    assert inside._calls["one", 1].__module__ == "delayq.handlers.middleware"


async def _one(order: int = 7) -> None: ...


async def _many(orders: list[int]) -> None: ...


@contextmanager
def block(_: Any) -> Iterator[None]:  # noqa: ANN401 -- of both kinds
    yield


@asynccontextmanager
async def async_block(_: Any) -> AsyncIterator[None]:  # noqa: ANN401 -- as above
    yield


@pytest.mark.parametrize(
    ("decorator", "function", "why"),
    [
        ("around_run", block.__wrapped__, r"block needs @contextmanager below @app\.around_run"),  # type: ignore[attr-defined]
        ("around_run", async_block.__wrapped__, "needs @asynccontextmanager below"),  # type: ignore[attr-defined]
        ("around_run", _one, "_one needs @asynccontextmanager below"),
        ("around_schedule", block.__wrapped__, r"block needs @contextmanager below @app\.around_schedule"),  # type: ignore[attr-defined]
        ("around_schedule", async_block, "schedule_sync has no event loop"),
        ("around_schedule", _one, "needs @contextmanager and a plain `def`"),
        ("around_run", nullcontext(), "expected a function that returns a context manager, got a nullc"),
    ],
)
def test_a_missing_decorator_is_named(decorator: str, function: Any, why: str) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=rf"app\.{decorator}: .*{why}"):
        getattr(App(), decorator)(function)


def test_a_notebook_cell_that_runs_again_replaces_its_middleware() -> None:
    app, notes = App(), Notes()
    assert app.around_run(block) is block
    app.around_run(notes.plain)
    again = functools.wraps(block)(functools.partial(block))
    app.around_run(again)
    assert app.run_middleware == [again, notes.plain]


@pytest.fixture
def shop(delayq_queue: Callable[[App], Queue]) -> tuple[App, Queue]:
    app = App()

    @app.task
    async def remind(context: Context, order: int) -> None:
        SEEN.append((order, dict(context.task.headers)))

    return app, delayq_queue(app)


SEEN: list[tuple[int, Mapping[str, str]]] = []


async def scheduled(app: App, how: str, *args: Any, **options: Any) -> None:  # noqa: ANN401
    """Schedule in each way that an App has."""
    kind = app.find("remind", 1)
    assert kind is not None
    call = kind.options(**options)
    if how == "schedule":
        async with app:
            await call.schedule(*args)
    elif how == "schedule_sync":
        call.schedule_sync(*args)
    elif how == "schedule_many":
        async with app:
            await kind.schedule_many(call.task(*args) for _ in range(1))
    else:
        kind.schedule_many_sync([call.task(*args)])


WAYS = ("schedule", "schedule_sync", "schedule_many", "schedule_many_sync")


@pytest.mark.parametrize("how", WAYS)
async def test_around_schedule_sees_the_call_and_adds_headers_that_the_run_reads(
    shop: tuple[App, Queue], how: str
) -> None:
    app, queue = shop
    SEEN.clear()
    seen: list[Any] = []

    @app.around_schedule
    @contextmanager
    def outer(scheduling: Scheduling) -> Iterator[None]:
        scheduling.headers["trace"] = "1"
        yield
        seen.append("outer ends")

    @app.around_schedule
    @contextmanager
    def inner(scheduling: Scheduling) -> Iterator[None]:
        options = scheduling.options
        seen.append((scheduling.kind.name, dict(scheduling.arguments), options.id, dict(scheduling.headers)))
        yield
        seen.append("inner ends")

    await scheduled(app, how, 7, id="order-7", headers={"from": "web"})
    headers = {"from": "web", "trace": "1"}
    assert seen == [("remind", {"order": 7}, "order-7", headers), "inner ends", "outer ends"]
    [run] = await queue.run_due_async()
    assert (run.id, run.outcome, SEEN) == ("remind:order-7", "acked", [(7, headers)])


@pytest.mark.parametrize("how", ["schedule", "schedule_sync"])
async def test_around_schedule_sees_why_a_task_is_refused_and_cannot_hide_it(
    shop: tuple[App, Queue], how: str
) -> None:
    app, queue = shop
    seen = []

    @app.around_schedule
    @contextmanager
    def noting(_: Scheduling) -> Iterator[None]:
        try:
            yield
        except TaskExists:
            seen.append("exists")
            raise

    @app.around_schedule
    @contextmanager
    def hiding(_: Scheduling) -> Iterator[None]:
        with suppress(TaskExists):
            yield

    await scheduled(app, how, 7, id="order-7")
    with pytest.raises(TaskExists):
        await scheduled(app, how, 7, id="order-7")
    assert (seen, len(queue.scheduled())) == (["exists"], 1)


@pytest.mark.parametrize("how", WAYS)
async def test_an_exception_before_the_block_stores_nothing(shop: tuple[App, Queue], how: str) -> None:
    app, queue = shop

    @app.around_schedule
    @contextmanager
    def broken(_: Scheduling) -> Iterator[None]:
        raise OSError("no tracer")
        yield

    with pytest.raises(OSError, match="no tracer"):
        await scheduled(app, how, 7)
    assert queue.scheduled() == []


@pytest.mark.parametrize("headers", [7, "text", [1, 2], {"a": 1}])
def test_arguments_and_headers_that_do_not_fit_are_refused_as_without_middleware(
    shop: tuple[App, Queue],
    headers: Any,  # noqa: ANN401
) -> None:
    app, queue = shop
    kind = app.find("remind", 1)
    assert kind is not None
    for _ in range(2):
        with pytest.raises(InvalidTask, match="missing a required argument: 'order'"):
            kind.schedule_sync()
        with pytest.raises(InvalidTask, match="order"):
            kind.schedule_sync("seven")
        with pytest.raises(InvalidTask, match=r"headers.*expected a mapping of strings to strings"):
            kind.options(headers=headers).schedule_sync(7)
        app.around_schedule(block)
    assert queue.scheduled() == []


def test_without_headers_a_task_in_middleware_has_none(shop: tuple[App, Queue]) -> None:
    app, _ = shop
    kind = app.find("remind", 1)
    assert kind is not None
    bare = kind.options(delay="1s", id="a", tags=["x"]).task(7)
    app.around_schedule(block)
    assert kind.options(delay="1s", id="a", tags=["x"]).task(7) == bare
