"""The block around a run: a cancellation means what it means without a guard, whichever moment it hits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.handlers import cancelled
from delayq.handlers.guarded import apart, sharing, sharing_in_thread
from delayq.handlers.python import in_thread
from delayq.handlers.threads import Threads
from delayq.protocol.envelope import Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.guards.conftest import Database

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def task(task_id: str = "order-7") -> Task:
    return Task(task_id, "orders", 1, 1, 0, 0, b"null", "application/json", {})


@pytest.fixture
async def guard(database: Database) -> AsyncIterator[SqlUnique]:
    guard = SqlUnique(database.sync_url, queue="orders")
    await guard.install()
    yield guard
    await guard.close()
    guard.close_sync()


@pytest.fixture
async def apart_guard(database: Database) -> AsyncIterator[SqlUnique]:
    guard = SqlUnique(database.sync_url, queue="orders", apart=True)
    await guard.install()
    yield guard
    await guard.close()


async def given_up(call: Any, started: threading.Event) -> None:  # noqa: ANN401  a coroutine function of any kind
    """Run a task as the worker does, and cancel it once its handler has begun."""
    running = asyncio.create_task(call(task()))
    await asyncio.to_thread(started.wait, 30)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_block_that_swallows_its_cancellation_is_not_done(guard: SqlUnique) -> None:
    """It may have left its work half done: the mark must not say otherwise."""
    started = threading.Event()

    async def handle(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    await given_up(sharing(handle, guard), started)
    assert await guard.seen(task()) is False


async def test_a_thread_that_obeys_is_not_done(guard: SqlUnique) -> None:
    """A plain function that is told to stop returns early, and well."""
    started, threads = threading.Event(), Threads(1)

    def handle(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        started.set()
        while not cancelled():
            threading.Event().wait(0.01)

    await given_up(in_thread(sharing_in_thread(handle, guard), threads), started)
    assert await guard.seen(task()) is False
    threads.close()


async def test_a_coroutine_function_that_looks_plain_is_refused_before_the_mark(guard: SqlUnique) -> None:
    """Its coroutine would be awaited when the transaction is over."""

    async def handle(_task: Task, connection: Any) -> None: ...  # noqa: ANN401  the guard's

    @functools.wraps(handle)
    def wrapper(*args: Any, **named: Any) -> Any:  # noqa: ANN401  any decorator's
        return handle(*args, **named)

    threads = Threads(1)
    with pytest.raises(TypeError, match="make it async"):
        await in_thread(sharing_in_thread(wrapper, guard), threads)(task())
    assert await guard.seen(task()) is False
    threads.close()


async def test_a_mark_is_made_though_the_wait_for_it_is_interrupted(
    apart_guard: SqlUnique, database: Database
) -> None:
    """The handler has ended well; a second run would be a second effect."""
    assert database.server is not None
    ended = asyncio.Event()

    async def handle(_task: Task) -> None:
        database.server.pause()  # type: ignore[union-attr]  # see above
        ended.set()

    call: Any = apart(handle, apart_guard)
    running = asyncio.create_task(call(task()))
    await ended.wait()
    await asyncio.sleep(0)  # into the wait for the mark
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    database.server.resume()
    async with asyncio.timeout(30):
        while not await apart_guard.seen(task()):  # noqa: ASYNC110  the database has no event for it
            await asyncio.sleep(0.02)
