"""The SQL guards with the handler's writes in their transaction: one effect, or none yet, after any fault between.

What all guards do the same way (`guards/sql/steps.py`, `aio.py`, `pools.py`) is tried with one of them.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from delayq.errors import GuardBusy, GuardLost, GuardUnavailable
from delayq.guards import SqlPessimistic, SqlUnique
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
    sql,
    task,
    transfer,
    transfer_sync,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.guards.sql.engines import SqlHold
    from delayq.guards.sql.guard import SqlGuard
    from delayq.guards.sql.settings import SqlLimits
    from sqlalchemy import TextClause

    from tests.guards.conftest import Database, Make, Opened

TASKS = 20
HEAVY = text("INSERT INTO effects VALUES ('heavy', 1), ('heavy', 2), ('heavy', 3)")
OVER = "ended before the handler did"
BOTH = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
MARIADB = pytest.mark.parametrize("database", ["mariadb"], indirect=True)
POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@pytest.fixture(params=KINDS)
def guard(request: pytest.FixtureRequest, make: Make) -> SqlGuard:
    made: SqlGuard = make(KINDS[request.param], queue="orders", limits=PATIENT)
    return made


@pytest.fixture
def unique(make: Make) -> SqlUnique:
    return make(SqlUnique, queue="orders", limits=PATIENT)


def another(guard: SqlGuard, database: Database, limits: SqlLimits = PATIENT) -> SqlGuard:
    """The same guard in another worker."""
    made: SqlGuard = KINDS[guard.name](database.async_url, queue="orders", limits=limits)
    return made


async def write(hold: SqlHold, task_id: str = "order-7") -> None:
    await hold.connection.execute(EFFECT, {"id": task_id, "token": hold.task.token})


async def test_a_task_takes_effect_once_and_a_run_that_does_not_succeed_has_none(guard: SqlGuard) -> None:
    async def fail() -> None:
        async with guard(task()) as hold:
            await write(hold)
            raise KeyError("card")

    def lose() -> None:
        with guard(task(token=2)) as hold:
            hold.connection.execute(EFFECT, {"id": "order-7", "token": 2})
            hold.lose("another worker has it")

    async def wait(token: int, inside: asyncio.Event) -> None:
        async with guard(task(token=token)) as hold:
            await write(hold)
            inside.set()
            await asyncio.Event().wait()

    with pytest.raises(KeyError, match="card"):
        await fail()
    with pytest.raises(GuardLost, match="another worker"):
        lose()
    for token in range(3, 8):
        running = asyncio.create_task(wait(token, inside := asyncio.Event()))
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert (effects(guard), await guard.seen(task())) == ({}, False)

    async with guard(task(token=8)) as hold:
        await write(hold)
        with pytest.raises(DBAPIError):
            async with hold.connection.begin_nested():  # a savepoint keeps the error from failing the run
                await hold.connection.execute(text("SELECT * FROM nowhere"))
    assert await transfer(guard, task(token=9)) == "seen"
    assert (effects(guard), await guard.seen(task(token=9))) == ({"order-7": 1}, True)
    assert await transfer(guard, task(queue="refunds")) == "ran"


async def test_two_runs_at_once_have_one_effect(guard: SqlGuard, database: Database) -> None:
    def work(each: SqlGuard, token: int) -> None:
        ended.extend(transfer_sync(each, task(f"plain-{number}", token=token)) for number in range(TASKS))
        each.close_sync()

    other = another(guard, database)
    runs = [
        transfer(each, task(f"order-{number}", token=token))
        for number in range(TASKS)
        for token, each in enumerate((guard, other))
    ]
    ended = await asyncio.gather(*runs)
    await other.close()
    threads = [threading.Thread(target=work, args=(another(guard, database), token)) for token in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["ran"] * 2 * TASKS + ["seen"] * 2 * TASKS
    assert effects(guard) == {f"{kind}-{number}": 1 for kind in ("order", "plain") for number in range(TASKS)}


@BOTH
@pytest.mark.parametrize("before_the_commit", [False, True])
async def test_a_connection_that_is_killed_leaves_nothing_behind(
    unique: SqlUnique, database: Database, *, before_the_commit: bool
) -> None:
    own, kill, there = {
        "postgresql": (
            "pg_backend_pid()",
            "SELECT pg_terminate_backend({})",
            "SELECT 1 FROM pg_stat_activity WHERE pid = {}",
        ),
        "mariadb": (
            "CONNECTION_ID()",
            "KILL CONNECTION {}",
            "SELECT 1 FROM information_schema.processlist WHERE id = {}",
        ),
    }[database.kind]

    async def run(token: int) -> None:
        async with unique(task(token=token)) as hold:
            await write(hold)
            number = await hold.connection.scalar(text(f"SELECT {own}"))
            sql(unique, kill.format(number))
            while sql(unique, there.format(number)):  # noqa: ASYNC110 -- the database has no event for it
                await asyncio.sleep(0.01)
            if not before_the_commit:
                await write(hold)

    for token in range(3):
        with pytest.raises(
            GuardUnavailable, match=None if before_the_commit else "lost while the handler ran"
        ):
            await run(token)
        assert effects(unique) == {}
    assert await transfer(unique, task(token=99)) == "ran"
    assert effects(unique) == {"order-7": 1}


async def test_a_handler_that_goes_on_after_an_error_of_its_sql_has_failed(unique: SqlUnique) -> None:
    """PostgreSQL has rolled everything back by then, and answers COMMIT as if nothing were wrong."""
    try:
        async with unique(task()) as hold:
            await write(hold)
            with pytest.raises(DBAPIError):
                await hold.connection.execute(text("SELECT * FROM nowhere"))
    except RuntimeError as error:
        assert "begin_nested" in str(error)  # noqa: PT017 -- the others have not failed
        assert effects(unique) == {}
    assert await transfer(unique, task(token=2)) in ("ran", "seen")
    assert effects(unique) == {"order-7": 1}


async def test_a_handler_that_ends_the_transaction_itself_has_failed(guard: SqlGuard) -> None:
    async def run(ending: str) -> None:
        async with guard(task(ending)) as hold:
            await write(hold)
            await getattr(hold.connection, ending)()

    for ending in ("commit", "rollback", "close"):
        with pytest.raises(RuntimeError, match=OVER):
            await run(ending)
        assert await transfer(guard, task(ending, token=2)) in ("ran", "seen")


@POSTGRESQL
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_handler_that_ends_the_transaction_in_its_own_sql_has_failed(
    unique: SqlUnique, database: Database, driver: str, opened: Opened
) -> None:
    """A statement that follows begins another transaction with psycopg, and commits by itself with asyncpg."""
    made = opened(SqlUnique(database.async_url.replace("psycopg", driver), limits=HASTY))

    async def run(ending: str, *, goes_on: bool) -> None:
        async with made(task(ending)) as hold:
            await write(hold, "before")
            await hold.connection.exec_driver_sql(ending)
            if goes_on:
                await write(hold, "after")

    more = (("ROLLBACK", True), ("COMMIT", True)) if driver == "psycopg" else ()
    for ending, goes_on in (("ROLLBACK", False), *more):
        with pytest.raises(RuntimeError, match=OVER):
            await run(ending, goes_on=goes_on)
    assert "after" not in effects(unique)
    assert await transfer(made, task("ROLLBACK", token=2)) == "ran"


OWN_PID = text("SELECT pg_backend_pid()")
WAITS = text("SELECT count(*) FROM pg_locks WHERE pid = :pid AND NOT granted")


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
        await heavy.execute(HEAVY)  # the transaction that has written more is not the victim
        await hold.connection.execute(first)
        pid = await heavy.scalar(OWN_PID) if database.kind == "postgresql" else 0
        waiting = asyncio.create_task(heavy.execute(first))
        while pid and not await hold.connection.scalar(WAITS.bindparams(pid=pid)):  # noqa: ASYNC110 -- PostgreSQL sends no event
            await asyncio.sleep(0.01)  # PostgreSQL looks for a deadlock once, so both have to wait by then
        try:
            yield second
        finally:
            await waiting
            await heavy.rollback()


@MARIADB
async def test_what_mariadb_ends_by_itself_fails_a_handler_that_goes_on(
    unique: SqlUnique, database: Database
) -> None:
    """It rolls back at a deadlock and commits before it changes a table's definition, and says neither at COMMIT."""
    sql(unique, "INSERT INTO orders VALUES (1, 0, ''), (2, 0, '')")

    async def meets_a_deadlock() -> None:
        async with unique(task()) as hold:
            async with deadlock(database, hold) as statement:
                with pytest.raises(DBAPIError, match="1213"):
                    await hold.connection.execute(statement)
            await write(hold)

    async def defines_a_table() -> None:
        async with unique(task()) as hold:
            await hold.connection.execute(text("CREATE TABLE more (id INTEGER)"))

    with pytest.raises(RuntimeError, match=OVER):
        await meets_a_deadlock()
    assert effects(unique) == {}
    with pytest.raises(RuntimeError, match="definition"):
        await defines_a_table()


@BOTH
async def test_a_handler_whose_statement_meets_a_deadlock_comes_again_without_charge(
    unique: SqlUnique, database: Database
) -> None:
    sql(unique, "INSERT INTO orders VALUES (1, 0, ''), (2, 0, '')")

    async def run() -> None:
        async with unique(task()) as hold, deadlock(database, hold) as statement:
            await hold.connection.execute(statement)

    with pytest.raises(GuardBusy, match="a deadlock or a serialization failure") as busy:
        await run()
    assert (busy.value.charge, isinstance(busy.value.__cause__, DBAPIError)) == (False, True)
    assert await transfer(unique, task(token=2)) == "ran"


@POSTGRESQL
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_only_a_rollback_of_the_guards_own_transaction_comes_without_charge(
    unique: SqlUnique, database: Database, driver: str, opened: Opened
) -> None:
    made = opened(SqlUnique(database.async_url.replace("psycopg", driver), limits=HASTY))
    engine = create_engine(database.sync_url)
    raised = text("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")

    async def run(*, other: bool) -> None:
        async with made(task()) as hold:
            if not other:
                await hold.connection.execute(raised)
            with engine.connect() as connection:
                connection.execute(raised)

    def plain(*, other: bool) -> None:
        with made(task()) as hold, engine.connect() as its:
            (its if other else hold.connection).execute(raised)

    for other, error in ((False, GuardBusy), (True, DBAPIError)):
        with pytest.raises(error):
            await run(other=other)
        with pytest.raises(error):
            plain(other=other)
    made.close_sync()
    engine.dispose()
    assert await transfer(unique, task(token=2)) == "ran"


async def test_a_run_that_is_cancelled_at_any_moment_has_its_whole_effect_or_none(make: Make) -> None:
    """Also while it connects, begins or commits; and no connection is lost to the pool."""
    guard = make(SqlPessimistic, queue="orders", limits=PATIENT)  # the one with the most steps
    for number in range(30):
        running = asyncio.create_task(transfer(guard, task(f"order-{number}")))
        for _ in range(number):
            await asyncio.sleep(0.0005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await asyncio.gather(*(transfer(guard, task(f"order-{number}", token=2)) for number in range(30)))
    assert effects(guard) == {f"order-{number}": 1 for number in range(30)}


HOSTILE = (
    *("'; DROP TABLE delayq_processed; --".replace(" ", "_"), '"', "\\", "%s%(id)s:id?"),
    *("é" * 100, "e\u0301" * 66, "ß", "SS", "ss", "x" * 200, "日本語", "🦀", "a", "A"),
)


async def test_ids_are_compared_byte_by_byte_and_never_become_sql_or_are_cut(unique: SqlUnique) -> None:
    for each in HOSTILE:
        assert await unique.seen(task(each)) is False
        assert await transfer(unique, task(each)) == "ran", each
    for each in HOSTILE:
        assert await transfer(unique, task(each, token=2)) == "seen"
    assert sum(effects(unique).values()) == len(HOSTILE)
    for too_long in ("x" * 201, "é" * 101):
        with pytest.raises(ValueError, match="at most 200 bytes"):
            await unique.begin(task(too_long))
