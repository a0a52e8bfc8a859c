"""The block around a run: a cancellation means what it means without a guard, whichever moment it hits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.handlers import cancelled
from delayq.handlers.guarded import apart, sharing, sharing_in_thread
from delayq.handlers.python import in_thread
from delayq.handlers.threads import Threads

from tests.guards.sql_bank import task

if TYPE_CHECKING:
    from delayq.protocol.envelope import Task

    from tests.guards.conftest import Database, Make

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


async def given_up(call: Any, started: threading.Event) -> None:  # noqa: ANN401  a coroutine function of any kind
    """Run a task as the worker does, and cancel it once its handler has begun."""
    running = asyncio.create_task(call(task()))
    await asyncio.to_thread(started.wait, 30)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_work_that_may_be_half_done_is_not_done(make: Make) -> None:
    """A block that suppresses its cancellation; a thread that is asked to stop, and returns early without an error."""
    guard, swallowing, obeying, threads = make(SqlUnique), threading.Event(), threading.Event(), Threads(1)

    async def swallow(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        swallowing.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    def obey(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        obeying.set()
        while not cancelled():
            threading.Event().wait(0.01)

    await given_up(sharing(swallow, guard), swallowing)
    assert await guard.seen(task()) is False
    await given_up(in_thread(sharing_in_thread(obey, guard), threads), obeying)
    assert await guard.seen(task()) is False
    threads.close()


async def test_a_mark_is_made_though_the_wait_for_it_is_interrupted(database: Database, make: Make) -> None:
    """The handler has ended well; a second run would be a second effect."""
    assert database.server is not None
    guard, ended = make(SqlUnique, apart=True), asyncio.Event()

    async def handle(_task: Task) -> None:
        database.server.pause()  # type: ignore[union-attr]  # see above
        ended.set()

    call: Any = apart(handle, guard)
    running = asyncio.create_task(call(task()))
    await ended.wait()
    await asyncio.sleep(0)  # into the wait for the mark
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    database.server.resume()
    async with asyncio.timeout(30):
        while not await guard.seen(task()):  # noqa: ASYNC110  the database has no event for it
            await asyncio.sleep(0.02)
