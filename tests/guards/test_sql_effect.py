"""The SQL guards with the handler's writes in their transaction: one effect, or none yet, whatever happens between."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq.errors import GuardBusy, GuardLost, GuardUnavailable, Seen
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.guards.sql_bank import (
    EFFECT,
    HASTY,
    KINDS,
    PATIENT,
    effects,
    prepared,
    sql,
    task,
    transfer,
    transfer_sync,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.guards.sql.engines import SqlHold
    from delayq.guards.sql.guard import SqlGuard
    from delayq.guards.sql.settings import Limits
    from sqlalchemy import TextClause

    from tests.guards.conftest import Database, Opened

TASKS = 20
HEAVY = text("INSERT INTO effects VALUES ('heavy', 1), ('heavy', 2), ('heavy', 3)")
BOTH = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@pytest.fixture(params=KINDS)
async def guard(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[SqlGuard]:
    made: SqlGuard = KINDS[request.param](database.async_url, queue="orders", limits=PATIENT)
    prepared(made)
    yield made
    await made.close()


def another(guard: SqlGuard, database: Database, limits: Limits = PATIENT) -> SqlGuard:
    """As another worker has it."""
    made: SqlGuard = KINDS[guard.name](database.async_url, queue="orders", limits=limits)
    return made


async def test_a_task_takes_effect_and_is_seen_ever_after(guard: SqlGuard) -> None:
    assert await guard.seen(task()) is False
    assert await transfer(guard, task()) == "ran"
    assert await transfer(guard, task(token=2)) == "seen"
    assert await guard.seen(task(token=2)) is True
    assert effects(guard) == {"order-7": 1}


async def test_a_run_that_fails_has_had_no_effect_and_the_next_one_runs(guard: SqlGuard) -> None:
    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            raise KeyError("card")

    with pytest.raises(KeyError, match="card"):
        await run()
    assert effects(guard) == {}
    assert await guard.seen(task()) is False
    assert await transfer(guard, task(token=2)) == "ran"
    assert effects(guard) == {"order-7": 1}


async def test_two_runs_at_once_have_one_effect(guard: SqlGuard, database: Database) -> None:
    other = another(guard, database)
    runs = [
        transfer(each, task(f"order-{number}", token=token))
        for number in range(TASKS)
        for token, each in enumerate((guard, other))
    ]
    ended = await asyncio.gather(*runs)
    await other.close()
    assert sorted(ended) == ["ran"] * TASKS + ["seen"] * TASKS
    assert effects(guard) == {f"order-{number}": 1 for number in range(TASKS)}


async def test_two_threads_at_once_have_one_effect(guard: SqlGuard, database: Database) -> None:
    def work(each: SqlGuard, token: int) -> None:
        ended.extend(transfer_sync(each, task(f"order-{number}", token=token)) for number in range(TASKS))
        each.close_sync()

    ended: list[str] = []
    threads = [threading.Thread(target=work, args=(another(guard, database), token)) for token in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["ran"] * TASKS + ["seen"] * TASKS
    assert effects(guard) == {f"order-{number}": 1 for number in range(TASKS)}
    guard.close_sync()


async def test_of_two_runs_that_are_both_in_their_handler_one_has_an_effect(
    guard: SqlGuard, database: Database
) -> None:
    """Where the guard lets them both in; the others wait outside, which is as good."""
    if database.kind == "sqlite":
        return  # one transaction at a time, whatever the guard
    other, inside, go = another(guard, database, limits=HASTY), asyncio.Event(), asyncio.Event()

    async def first() -> str:
        try:
            async with guard(task()) as hold:
                inside.set()
                await go.wait()
                await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
        except Seen:
            return "seen"
        return "ran"

    running = asyncio.create_task(first())
    await inside.wait()
    if guard.name == "sql-optimistic":
        assert await transfer(other, task(token=2)) == "ran"
        go.set()
        assert await running == "seen"
    else:
        go.set()
        assert await running == "ran"
        assert await transfer(other, task(token=2)) == "seen"
    await other.close()
    assert effects(guard) == {"order-7": 1}


@BOTH
async def test_a_connection_that_is_killed_under_the_handler_leaves_nothing_behind(
    guard: SqlGuard, database: Database
) -> None:
    own, kill = {
        "postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend({})"),
        "mariadb": ("CONNECTION_ID()", "KILL CONNECTION {}"),
    }[database.kind]

    async def run(token: int) -> None:
        async with guard(task(token=token)) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": token})
            number = await hold.connection.scalar(text(f"SELECT {own}"))
            sql(guard, kill.format(number))
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": token})

    for token in range(10):
        with pytest.raises(GuardUnavailable, match="lost while the handler ran"):
            await run(token)
        assert effects(guard) == {}
    assert await transfer(guard, task(token=99)) == "ran"
    assert effects(guard) == {"order-7": 1}


@POSTGRESQL
async def test_a_connection_that_is_killed_before_the_commit_leaves_nothing_behind(guard: SqlGuard) -> None:
    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            pid = await hold.connection.scalar(text("SELECT pg_backend_pid()"))
            sql(guard, "SELECT pg_terminate_backend(:pid)", pid=pid)
            while sql(  # noqa: ASYNC110 -- the database tells nobody
                guard, "SELECT 1 FROM pg_stat_activity WHERE pid = :pid", pid=pid
            ):
                await asyncio.sleep(0.01)

    with pytest.raises(GuardUnavailable):
        await run()
    assert effects(guard) == {}
    assert await transfer(guard, task(token=2)) == "ran"


async def test_a_handler_that_goes_on_after_an_error_of_its_sql_has_failed(guard: SqlGuard) -> None:
    """PostgreSQL has rolled everything back by then, and answers COMMIT as if nothing were wrong."""
    try:
        async with guard(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            with pytest.raises(DBAPIError):
                await hold.connection.execute(text("SELECT * FROM nowhere"))
    except RuntimeError as error:
        assert "begin_nested" in str(error)  # noqa: PT017 -- the others have not failed
        assert effects(guard) == {}
    assert await transfer(guard, task(token=2)) in ("ran", "seen")
    assert effects(guard) == {"order-7": 1}


async def test_a_savepoint_keeps_a_failing_statement_from_failing_the_run(guard: SqlGuard) -> None:
    async with guard(task()) as hold:
        await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
        with pytest.raises(DBAPIError):
            async with hold.connection.begin_nested():
                await hold.connection.execute(text("SELECT * FROM nowhere"))
    assert effects(guard) == {"order-7": 1}


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
async def test_a_handler_that_ends_the_transaction_itself_is_told_so(guard: SqlGuard, ending: str) -> None:
    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            await getattr(hold.connection, ending)()

    with pytest.raises(RuntimeError, match="was over before its block"):
        await run()
    assert await transfer(guard, task(token=2)) in ("ran", "seen")


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@POSTGRESQL
async def test_a_handler_that_rolls_back_in_words_of_its_own_is_told_so_too(
    guard: SqlGuard, database: Database, driver: str, opened: Opened
) -> None:
    made: SqlGuard = opened(KINDS[guard.name](database.async_url.replace("psycopg", driver), limits=HASTY))

    async def run() -> None:
        async with made(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            await hold.connection.exec_driver_sql("ROLLBACK")

    with pytest.raises(RuntimeError, match="was over before its block"):
        await run()
    assert await transfer(made, task(token=2)) == "ran"


@pytest.mark.parametrize("ending", ["ROLLBACK", "COMMIT"])
@POSTGRESQL
async def test_a_handler_that_goes_on_after_an_end_in_words_of_its_own_has_failed(
    guard: SqlGuard, ending: str
) -> None:
    """Its next statement begins another transaction, in which the guard's mark is not."""

    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(EFFECT, {"id": "before", "token": 1})
            await hold.connection.exec_driver_sql(ending)
            await hold.connection.execute(EFFECT, {"id": "after", "token": 1})

    with pytest.raises(RuntimeError, match="was over before its block"):
        await run()
    assert "after" not in effects(guard)


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_handler_that_changes_a_tables_definition_is_told_that_mariadb_has_committed(
    guard: SqlGuard,
) -> None:
    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(text("CREATE TABLE more (id INTEGER)"))

    with pytest.raises(RuntimeError, match="definition"):
        await run()


@asynccontextmanager
async def deadlock(database: Database, hold: SqlHold) -> AsyncIterator[TextClause]:
    """Gives the statement with which the hold's transaction is rolled back in favour of another one."""
    change = text("UPDATE orders SET version = 1 WHERE id = :id")
    first, second = (change.bindparams(id=number) for number in (1, 2))
    engine = create_async_engine(database.async_url, poolclass=NullPool)
    async with engine.connect() as heavy:
        if database.kind == "postgresql":  # the first to look finds it
            await heavy.execute(text("SET LOCAL deadlock_timeout = '60s'"))
            await hold.connection.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
        await heavy.execute(second)
        await heavy.execute(HEAVY)  # whoever has written more is not the victim
        await hold.connection.execute(first)
        waiting = asyncio.create_task(heavy.execute(first))
        try:
            yield second
        finally:
            await waiting
            await heavy.rollback()


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
async def test_a_handler_that_goes_on_after_a_deadlock_has_failed(
    guard: SqlGuard, database: Database
) -> None:
    """MariaDB has rolled everything back by then, and would commit what came after."""
    sql(guard, "INSERT INTO orders VALUES (1, 0, ''), (2, 0, '')")

    async def run() -> None:
        async with guard(task()) as hold:
            async with deadlock(database, hold) as statement:
                with pytest.raises(DBAPIError, match="1213"):
                    await hold.connection.execute(statement)
            await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})

    with pytest.raises(RuntimeError, match="was over before its block"):
        await run()
    assert effects(guard) == {}


@BOTH
async def test_a_handler_whose_statement_meets_a_deadlock_comes_again_without_charge(
    guard: SqlGuard, database: Database
) -> None:
    sql(guard, "INSERT INTO orders VALUES (1, 0, ''), (2, 0, '')")

    async def run() -> None:
        async with guard(task()) as hold, deadlock(database, hold) as statement:
            await hold.connection.execute(statement)

    with pytest.raises(GuardBusy, match="in favour of another") as busy:
        await run()
    assert (busy.value.charge, isinstance(busy.value.__cause__, DBAPIError)) == (False, True)
    assert await transfer(guard, task(token=2)) == "ran"


@POSTGRESQL
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_only_what_befell_the_guards_own_transaction_comes_without_charge(
    guard: SqlGuard, database: Database, driver: str
) -> None:
    made: SqlGuard = KINDS[guard.name](database.async_url.replace("psycopg", driver), limits=HASTY)
    engine = create_engine(database.sync_url)
    raised = text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")

    async def own() -> None:
        async with made(task()) as hold:
            await hold.connection.execute(raised)

    async def others() -> None:
        async with made(task()):
            with engine.connect() as other:
                other.execute(raised)

    def plain(*, other: bool) -> None:
        with made(task()) as hold, engine.connect() as its:
            (its if other else hold.connection).execute(raised)

    with pytest.raises(GuardBusy):
        await own()
    with pytest.raises(DBAPIError):
        await others()
    with pytest.raises(GuardBusy):
        plain(other=False)
    with pytest.raises(DBAPIError):
        plain(other=True)
    made.close_sync()
    await made.close()
    engine.dispose()
    assert await transfer(guard, task(token=2)) == "ran"


async def test_a_hold_that_is_lost_commits_nothing(guard: SqlGuard) -> None:
    def run() -> None:
        with guard(task()) as hold:
            hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
            hold.lose("somebody else has it")

    with pytest.raises(GuardLost, match="somebody else"):
        run()
    assert effects(guard) == {}
    guard.close_sync()


async def test_a_cancelled_run_has_no_effect_and_frees_its_row_at_once(guard: SqlGuard) -> None:
    for number in range(20):
        inside = asyncio.Event()

        async def run(token: int, inside: asyncio.Event) -> None:
            async with guard(task(token=token)) as hold:
                await hold.connection.execute(EFFECT, {"id": "order-7", "token": token})
                inside.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(run(number, inside))
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert effects(guard) == {}
    assert await transfer(guard, task(token=99)) == "ran"


async def test_a_run_that_is_cancelled_at_any_moment_has_its_whole_effect_or_none(guard: SqlGuard) -> None:
    """Also while it connects, begins or commits; and no connection is lost to the pool."""
    for number in range(30):
        running = asyncio.create_task(transfer(guard, task(f"order-{number}")))
        for _ in range(number):
            await asyncio.sleep(0.0005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await asyncio.gather(*(transfer(guard, task(f"order-{number}", token=2)) for number in range(30)))
    assert effects(guard) == {f"order-{number}": 1 for number in range(30)}


HOSTILE = [
    "'; DROP TABLE delayq_processed; --",
    '"',
    "\\",
    "%s%(id)s:id?",
    "é" * 100,
    "e\u0301" * 66,
    "ß",
    "SS",
    "ss",
    "x" * 200,
    "日本語",
    "🦀",
    "a",
    "A",
]


async def test_ids_are_told_apart_byte_by_byte_and_never_become_sql(guard: SqlGuard) -> None:
    for each in HOSTILE:
        each_id = each.replace(" ", "_")
        assert await guard.seen(task(each_id)) is False
        assert await transfer(guard, task(each_id)) == "ran", each_id
    for each in HOSTILE:
        assert await transfer(guard, task(each.replace(" ", "_"), token=2)) == "seen"
    assert sum(effects(guard).values()) == len(HOSTILE)


async def test_the_same_id_in_another_queue_is_another_task(guard: SqlGuard) -> None:
    assert await transfer(guard, task()) == "ran"
    assert await transfer(guard, task(queue="refunds")) == "ran"


async def test_an_id_that_no_row_can_hold_is_refused_and_not_cut(guard: SqlGuard) -> None:
    if guard.name == "sql-optimistic":
        with pytest.raises(ValueError, match="at most 200 bytes"):
            await guard.begin(task("x" * 201))
        return
    with pytest.raises(ValueError, match="at most 200 bytes"):
        await guard.begin(task("é" * 101))
