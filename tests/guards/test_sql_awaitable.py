"""A handler that returns an awaitable has not run yet: no guard records its task as done."""

from __future__ import annotations

import functools
import gc
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import App, BatchContext
from delayq.guards import SqlUnique
from delayq.handlers.app import AppHandler
from delayq.handlers.guarded import (
    apart,
    sharing,
    sharing_batch,
    sharing_batch_in_thread,
    sharing_in_thread,
)
from delayq.handlers.python import in_thread
from delayq.handlers.threads import Threads

from tests.guards.sql_bank import APART, EFFECT, KINDS, PATIENT, effects, task, transfer
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from delayq.guards.sql.guard import SqlGuard

    from tests.guards.conftest import Make

    Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

pytestmark = [
    pytest.mark.parametrize("database", ["postgresql", "sqlite"], indirect=True),
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]


class Lazy:
    """Awaitable, and no coroutine: as what a C or Cython module returns."""

    def __init__(self, make: Callable[[], Awaitable[object]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, None, object]:
        return self._make().__await__()


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:  # noqa: ANN401  any decorator's
        return function(*args, **named)

    return wrapper


def lazy(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:  # noqa: ANN401  any decorator's
        return Lazy(lambda: function(*args, **named))

    return wrapper


def generated(function: Callable[..., Any]) -> Callable[..., Any]:
    @types.coroutine
    def run(*args: Any, **named: Any) -> Any:  # noqa: ANN401  any decorator's
        yield from function(*args, **named).__await__()

    return plain(run)


WRAPS = {"coroutine": plain, "awaitable": lazy, "generator": generated}


@pytest.fixture(params=WRAPS)
def wrap(request: pytest.FixtureRequest) -> Wrap:
    return WRAPS[request.param]


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(1)
    yield made
    made.close()


async def write(given: Any, connection: Any = None) -> None:  # noqa: ANN401  a task or several
    for each in given if isinstance(given, list) else [given]:
        await connection.execute(EFFECT, {"id": each.id, "token": each.token})


def unawaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function that has no `await` before the call of another."""

    async def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401  any decorator's
        return function(*args, **named)

    return call


async def refused(guard: SqlGuard, call: Callable[[], Awaitable[object]]) -> None:
    """Two attempts fail alike, and the third, with the awaitable awaited, is not "seen"."""
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"awaitable \(\w+\) that has not run.*async def.*Nothing was rec"
        ):
            await call()
        gc.collect()  # a coroutine that was not closed warns here
        assert (effects(guard), await guard.seen(task())) == ({}, False)
    assert await transfer(guard, task(token=3)) == "ran"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_awaitable_of_a_plain_function_is_refused(
    make: Make, threads: Threads, wrap: Wrap, kind: str
) -> None:
    guard: SqlGuard = make(KINDS[kind], queue="orders", limits=PATIENT)
    call = in_thread(sharing_in_thread(wrap(write), guard), threads)
    await refused(guard, lambda: call(task()))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_awaitable_that_a_coroutine_function_returns_is_refused(
    make: Make, wrap: Wrap, kind: str
) -> None:
    guard: SqlGuard = make(KINDS[kind], queue="orders", limits=PATIENT)
    call = sharing(unawaited(wrap(write)), guard)
    await refused(guard, lambda: call(task()))


@pytest.mark.parametrize("kind", ["sql-unique", "sql-pessimistic"])
@pytest.mark.parametrize("in_a_thread", [True, False])
async def test_an_awaitable_of_a_batch_is_refused(
    make: Make, threads: Threads, wrap: Wrap, kind: str, *, in_a_thread: bool
) -> None:
    guard: SqlGuard = make(KINDS[kind], queue="orders", limits=PATIENT)
    plain_call: Callable[..., Any] = sharing_batch_in_thread(wrap(write), guard)
    on_the_loop = sharing_batch(unawaited(wrap(write)), guard)
    from_thread = in_thread(lambda each: plain_call([each]), threads)
    await refused(guard, lambda: from_thread(task()) if in_a_thread else on_the_loop([task()]))


async def test_a_batch_of_an_app_behind_a_plain_decorator_is_refused(make: Make, wrap: Wrap) -> None:
    guard, app = make(SqlUnique, queue="orders", limits=PATIENT), App()

    async def pay(context: BatchContext, orders: list[int]) -> None:  # noqa: ARG001  the items
        await write(context.tasks[0], context.connection)

    wrapped = functools.wraps(pay)(wrap(pay))
    pay.__annotations__ = {"context": BatchContext, "orders": list[int]}
    app.task(batch=10)(wrapped)
    handler = AppHandler(app, document({"python": {"app": "unused:app"}}), transactions=True)
    handler.under(guard)
    await refused(guard, lambda: handler.batches["pay", 1].call([replace(task(body=b"7"), kind="pay")]))
    await handler.close()


@pytest.mark.parametrize("kind", APART)
async def test_with_effects_elsewhere_an_awaitable_of_a_plain_function_runs_inside_the_block(
    make: Make, threads: Threads, wrap: Wrap, kind: str
) -> None:
    guard: SqlGuard = make(APART[kind], queue="orders", limits=PATIENT, apart=True)
    recorded: list[bool | None] = []

    async def handle(todo: object) -> None:  # noqa: ARG001  the handler's
        recorded.append(await guard.seen(task()))

    call = apart(in_thread(wrap(handle), threads), guard)
    await call(task())
    assert (recorded, await guard.seen(task())) == ([False], True)
