"""The SQL guards around handlers that write elsewhere: what they know of a run that began, and what they do then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
from delayq.errors import Bury, GuardBusy, Seen
from delayq.guards import SqlOptimistic, SqlUnique
from delayq.guards.sql.engines import SqlBatchHold
from delayq.guards.sql.settings import SqlLimits
from sqlalchemy import event

from tests.guards.sql_bank import APART, HASTY, PATIENT, prepared, sql, task

if TYPE_CHECKING:
    from delayq.guards.sql.guard import SqlGuard

    from tests.guards.conftest import Database, Make, Opened


@pytest.fixture
def unique(make: Make) -> SqlUnique:
    return make(SqlUnique, apart=True, limits=HASTY)


def row(guard: SqlGuard) -> list[tuple[Any, ...]]:
    return sql(guard, "SELECT state, token FROM delayq_processed")


async def test_a_task_is_running_and_then_done_and_a_run_that_fails_leaves_no_row(unique: SqlUnique) -> None:
    async def fail() -> None:
        async with unique(task()):
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert row(unique) == []
    await unique.begin(task(token=5))
    async with unique(task(token=5)) as hold:  # the same lease again: its first answer was lost
        assert hold.connection is None
        assert row(unique) == [("running", 5)]
        assert await unique.seen(task(token=5)) is False
        assert (await unique.incomplete_run(task())).startswith("(token 5) started at 20")
    assert row(unique) == [("done", 5)]
    assert await unique.incomplete_run(task()) == ""
    assert await unique.seen(task(token=5)) is True
    with pytest.raises(Seen):
        await unique.begin(task(token=6))


async def test_a_task_whose_run_is_incomplete_runs_again_or_is_buried_as_the_document_says(
    unique: SqlUnique, database: Database, opened: Opened
) -> None:
    careful = opened(SqlUnique(database.async_url, apart=True, on_incomplete_run="Bury", limits=HASTY))
    await unique.begin(task(token=1))
    with pytest.raises(
        Bury, match=r"an earlier run \(token 1\) started at 20.*onIncompleteRun.*guard forget"
    ):
        await careful.begin(task(token=2))
    assert row(unique) == [("running", 1)]
    async with unique(task(token=2)):
        assert row(unique) == [("running", 2)]
        assert await careful.forget("refunds", "order-7") is None
        assert await careful.forget("orders", "order-7") == "running"
        async with careful(task(token=3)):
            pass
    assert await careful.forget("orders", "order-7") == "done"
    assert row(unique) == [("done", 3)]
    assert await careful.forget("orders", "order-7", done=True) == "done"
    assert row(unique) == []


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("token", [1, 2])
async def test_a_handler_that_takes_the_connection_now_completes_an_incomplete_run(
    unique: SqlUnique, database: Database, opened: Opened, token: int, *, batch: bool
) -> None:
    """The row is of an older build of the handler, whose worker died."""
    await unique.begin(task(token=1))
    joined = opened(SqlUnique(database.async_url, limits=HASTY))
    async with joined.batch([task(token=token)]) if batch else joined(task(token=token)) as hold:
        if isinstance(hold, SqlBatchHold):
            hold.outcomes = [None]
    assert row(joined) == [("done", token)]
    with pytest.raises(Seen):
        await joined.begin(task(token=3))


@pytest.mark.parametrize("on_incomplete_run", ["Run", "Bury"])
async def test_a_run_that_is_interrupted_counts_as_incomplete_where_that_is_buried(
    unique: SqlUnique, database: Database, on_incomplete_run: Literal["Run", "Bury"], opened: Opened
) -> None:
    """By a time limit, a drain, a lost lease: the request is sent, and a thread goes on."""
    guard = opened(
        SqlUnique(database.async_url, apart=True, on_incomplete_run=on_incomplete_run, limits=HASTY)
    )
    inside = asyncio.Event()

    async def run() -> None:
        async with guard(task(token=1)):
            inside.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    if on_incomplete_run == "Bury":
        with pytest.raises(Bury, match="did not record its end"):
            await guard.begin(task(token=2))
    else:
        assert row(unique) == []


async def test_a_run_that_ends_after_its_row_is_gone_or_another_has_begun_is_logged(
    unique: SqlUnique, caplog: pytest.LogCaptureFixture
) -> None:
    """`guard forget` deleted the row: the effect is there all the same. After a later run, an earlier one has none."""
    async with unique(task()):
        sql(unique, "DELETE FROM delayq_processed")
    assert await unique.seen(task()) is True
    sql(unique, "DELETE FROM delayq_processed")
    early = await unique.begin(task(token=1))
    later = await unique.begin(task(token=2))
    with pytest.raises(GuardBusy, match="later run"):
        await unique.begin(task(token=1))
    await unique.finish(early)
    reported = [(record.message, record.fields["why"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert reported == [("guard_lost", "its row was deleted"), ("guard_lost", "a later run has taken over")]
    await unique.abandon(early)
    assert row(unique) == [("running", 2)]
    await unique.finish(later)
    assert row(unique) == [("done", 2)]


async def test_of_two_that_take_over_at_once_the_later_lease_has_the_row(
    unique: SqlUnique, database: Database, opened: Opened
) -> None:
    other = opened(SqlUnique(database.async_url, apart=True, limits=PATIENT))
    for number in range(10):
        await unique.begin(task(f"order-{number}", token=1))
        await asyncio.gather(
            *(each.begin(task(f"order-{number}", token=token)) for token, each in ((2, unique), (3, other))),
            return_exceptions=True,
        )
        async with other(task(f"order-{number}", token=3)):
            pass
    states = sql(unique, "SELECT state, token FROM delayq_processed")
    assert states == [("done", 3)] * 10


@pytest.mark.parametrize("kind", APART)
async def test_plain_code_does_the_same(database: Database, kind: str) -> None:
    guard: SqlGuard = APART[kind](database.sync_url, apart=True, limits=HASTY)
    prepared(guard)
    with guard(task()) as hold:
        assert hold.connection is None
    with pytest.raises(Seen), guard(task(token=2)):
        pass
    with pytest.raises(KeyError), guard(task("other")):
        raise KeyError
    assert guard._pools.once(lambda connection: guard.has(connection, task("other"))) is False
    guard.close_sync()


async def test_an_optimistic_run_apart_keeps_no_transaction_and_the_first_to_end_has_done_it(
    make: Make,
) -> None:
    guard = make(SqlOptimistic, apart=True, limits=SqlLimits(max_connections=1, lock_timeout_ms=1000))
    holds = [await guard.begin(task(token=token)) for token in range(5)]
    taken: list[int] = []
    pool = guard._pools._aio.pool()
    event.listen(pool, "checkout", lambda *_: taken.append(1))
    await guard.abandon(holds[2])  # nothing to undo: it does not even take a connection
    assert taken == []
    await guard.finish(holds[3])
    assert taken == [1]
    for hold in (holds[0], holds[4]):
        with pytest.raises(Seen, match="meanwhile"):
            await guard.finish(hold)
    assert await guard.seen(task()) is True
