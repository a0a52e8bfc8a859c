"""A run that a user cancels: a guard undoes it, unless its commit wins. Then the task is done."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.handlers.guarded import apart, sharing, sharing_in_thread
from delayq.handlers.python import in_thread
from delayq.handlers.threads import Threads
from delayq.protocol.results import Lease

from tests.guards.sql_bank import task
from tests.unit.handlers.support import document
from tests.unit.worker.support import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.protocol.envelope import Task
    from delayq.worker.slots import Running

    from tests.guards.conftest import Database, Make

QUEUE = document({"python": {"callable": "shop:handle"}})


@pytest.fixture
def threads() -> Iterator[Threads]:
    found = Threads(4)
    yield found
    found.close()


def started(call: Any) -> tuple[Worker, Running]:  # noqa: ANN401  a coroutine function of any kind
    worker = Worker(QUEUE, call)
    [running] = worker.claimed(Lease(task(), 0, b"order-7:41"))
    return worker, running


async def verbs(worker: Worker) -> list[str]:
    return [each.verb for each in await worker.settled()]


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_a_run_that_is_cancelled_before_its_commit_has_no_effect(make: Make, threads: Threads) -> None:
    guard, began = make(SqlUnique), asyncio.Event()
    loop, may_end = asyncio.get_running_loop(), threading.Event()

    async def waits(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        began.set()
        await asyncio.Event().wait()

    def blocks(_task: Task, connection: Any) -> None:  # noqa: ANN401, ARG001  the guard's
        loop.call_soon_threadsafe(began.set)
        may_end.wait(30)

    for call in (sharing(waits, guard), in_thread(sharing_in_thread(blocks, guard), threads)):
        began.clear()
        may_end.clear()
        worker, running = started(call)
        await began.wait()
        running.cancel("requested")
        await asyncio.sleep(0)  # the thread knows of it, though this one does not look
        may_end.set()
        assert await verbs(worker) == ["end_cancelled"]
        assert await guard.seen(task()) is False


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("kind", ["apart", "shared", "in a thread"])
async def test_a_run_whose_commit_wins_is_done(
    database: Database, make: Make, threads: Threads, kind: str
) -> None:
    """The request comes while the database does not answer the commit."""
    assert database.server is not None
    guard, ended = make(SqlUnique, apart=kind == "apart"), asyncio.Event()
    server, loop = database.server, asyncio.get_running_loop()

    def handle(_task: Task, connection: Any = None) -> None:  # noqa: ANN401, ARG001  the guard's
        server.pause()
        loop.call_soon_threadsafe(ended.set)

    async def handle_async(_task: Task, connection: Any = None) -> None:  # noqa: ANN401, ARG001  as above
        handle(_task)

    call: Any = {
        "apart": lambda: apart(handle_async, guard),
        "shared": lambda: sharing(handle_async, guard),
        "in a thread": lambda: in_thread(sharing_in_thread(handle, guard), threads),
    }[kind]()
    worker, running = started(call)
    try:
        await ended.wait()
        await asyncio.sleep(0.05)  # into the wait for the commit
        running.cancel("requested")
        await asyncio.sleep(0.05)
        assert not worker.group_state.outbox.waiting
    finally:
        server.resume()
    assert await verbs(worker) == ["ack"]
    assert await guard.seen(task()) is True
