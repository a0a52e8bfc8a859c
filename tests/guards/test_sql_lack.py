"""A process without memory or threads for its guard: the run has not begun, and no transaction stays open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import pytest
from delayq.errors import GuardUnavailable, NotStarted
from delayq.guards import SqlUnique
from sqlalchemy import create_engine

from tests.guards.sql_bank import HASTY, prepared, sql, task

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tests.guards.conftest import Database, Make, Opened


def too_much(_: Connection) -> NoReturn:
    raise AssertionError(len(bytes(2**62)))  # a real MemoryError


async def test_without_memory_a_run_has_not_begun_and_its_end_is_repeated(make: Make) -> None:
    guard = make(SqlUnique, limits=HASTY)
    with pytest.raises(NotStarted, match="MemoryError"):
        await guard.start(too_much)
    with pytest.raises(NotStarted, match="MemoryError"):
        guard.start_sync(too_much)
    with pytest.raises(GuardUnavailable) as raised:  # a handler has run before such a step
        await guard._aio.once(too_much)
    assert isinstance(raised.value.__cause__, NotStarted)


async def test_without_a_thread_a_run_has_not_begun_and_a_begun_one_ends(
    database: Database, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its transaction would stay open as long as the process lives. The driver has no asyncio."""
    engine = create_engine(database.sync_url)
    guard = opened(SqlUnique(engine, limits=HASTY))
    prepared(guard)
    for name, end in (("finished", guard.finish), ("abandoned", guard.abandon)):
        hold = await guard.begin(task(name))
        with monkeypatch.context() as lack:
            lack.setattr(sys, "excepthook", None)  # Python starts no thread without it
            with pytest.raises(NotStarted):
                await guard.begin(task("later"))
            await end(hold)
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    assert [row for [row] in sql(guard, "SELECT task_id FROM delayq_processed")] == ["finished"]
    await guard.abandon(await guard.begin(task("abandoned")))
    engine.dispose()
