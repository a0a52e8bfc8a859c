"""A database that is not there, does not answer, or does not let us in: no attempt is charged."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import GuardBusy, GuardUnavailable, InvalidDocument, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.guards.sql import errors
from delayq.guards.sql.settings import SqlLimits
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tests.databases import PASSWORD, USER, MariaDB, Postgres
from tests.guards.sql_bank import EFFECT, HASTY, KINDS, effects, prepared, sql, task, transfer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.guards.sql.guard import SqlGuard

    from tests.databases import DatabaseServer
    from tests.guards.conftest import Database, Make, Opened

POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["postgresql", "mariadb"])
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    """A server that may be stopped."""
    directory = tmp_path_factory.mktemp(request.param)
    server = Postgres.start(directory) if request.param == "postgresql" else MariaDB.start(directory)
    yield server
    server.resume()
    server.stop()


def async_url(server: DatabaseServer) -> str:
    return server.url("psycopg" if isinstance(server, Postgres) else "aiomysql")


async def away(guard: SqlGuard, **more: Any) -> GuardUnavailable:  # noqa: ANN401 -- of a task
    with pytest.raises(GuardUnavailable) as raised:
        await guard.begin(task(**more))
    assert raised.value.charge is False
    assert PASSWORD not in str(raised.value) + repr(raised.value.__cause__) + str(raised.value.__cause__)
    return raised.value


def unused_port() -> int:
    """A port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "mysql", "mysql+aiomysql"])
async def test_a_server_that_is_not_there_is_reported_with_its_address_and_no_password(
    scheme: str, caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    caplog.set_level(logging.DEBUG)
    port = unused_port()
    guard = opened(SqlUnique(f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/test", limits=HASTY))
    reported = await away(guard)
    assert reported.where == f"{scheme.partition('+')[0]}://127.0.0.1:{port}/test"
    with pytest.raises(GuardUnavailable):
        await guard.check()
    if "asyncpg" not in scheme:
        with pytest.raises(GuardUnavailable):
            guard.begin_sync(task())
    assert PASSWORD not in caplog.text + repr(guard) + repr(vars(guard))


async def test_a_server_that_is_silent_while_we_connect_is_away() -> None:
    """As one that is stopped, or behind a firewall: the kernel accepts, and no process answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        async def tried(scheme: str) -> None:
            guard = SqlUnique(f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/test", limits=HASTY)
            guard._aio._seconds = 7.0  # aiomysql waits for ever, others for 5 s
            plain = (
                asyncio.to_thread(guard.begin_sync, task()) if scheme == "postgresql" else guard.begin(task())
            )
            first, reported = await asyncio.gather(away(guard), plain, return_exceptions=True)
            assert isinstance(first, GuardUnavailable)
            assert isinstance(reported, GuardUnavailable)
            await guard.close()

        await asyncio.gather(*(tried(scheme) for scheme in ("postgresql", "postgresql+asyncpg", "mysql")))


async def test_a_wrong_password_or_database_or_a_missing_table_is_reported(database: Database) -> None:
    for made in KINDS.values():
        guard = made(database.async_url, limits=HASTY)
        assert "delayq guard init" in str(await away(guard))
        with pytest.raises(GuardUnavailable, match="delayq guard init"):
            await guard.check()
        with pytest.raises(GuardUnavailable, match="delayq guard init"):
            guard.begin_sync(task())
        await guard.close()
    for right, wrong in ((PASSWORD, "wrong-too"), (database.name, "nope")):
        if database.server is not None:
            guard = SqlUnique(database.async_url.replace(right, wrong), limits=HASTY)
            assert "wrong-too" not in str(await away(guard))
            await guard.close()


@POSTGRESQL
async def test_a_database_that_may_not_be_written_is_away_and_the_check_says_so_too(
    database: Database,
) -> None:
    guard = SqlUnique(database.async_url, limits=HASTY)
    prepared(guard)
    sql(guard, f'ALTER DATABASE "{database.name}" SET default_transaction_read_only = on')
    await guard.close()
    assert "read-only" in str(await away(guard))
    update = SqlOptimistic(database.async_url, update="UPDATE orders SET version = 1", limits=HASTY)
    for each in (guard, update):
        with pytest.raises(GuardUnavailable, match="read-only"):
            await each.check()
        await each.close()


@POSTGRESQL
async def test_missing_rights_and_too_many_connections_are_the_databases_trouble_and_not_the_tasks(
    database: Database, make: Make
) -> None:
    guard = make(SqlUnique, limits=HASTY)
    user = f"guest_{database.name[-8:]}"
    sql(guard, f"CREATE USER {user} CONNECTION LIMIT 1 PASSWORD 'guest'")
    sql(guard, f"GRANT SELECT ON delayq_processed TO {user}")
    guest = SqlUnique(database.async_url.replace(f"{USER}:{PASSWORD}", f"{user}:guest"), limits=HASTY)
    with pytest.raises(GuardUnavailable, match="permission denied"):
        await guest.check()
    sql(guard, f"GRANT ALL ON delayq_processed TO {user}")
    hold = await guest.begin(task())
    assert "too many connections" in str(await away(guest, id="other"))
    await guest.abandon(hold)
    await guest.close()
    sql(guard, f"DROP OWNED BY {user}")
    sql(guard, f"DROP USER {user}")


async def test_a_server_that_restarts_or_does_not_answer_fails_the_runs_in_it_and_none_after(
    own: DatabaseServer, opened: Opened
) -> None:
    limits = SqlLimits(lock_timeout_ms=1000, max_connections=3)
    guard = opened(SqlUnique(async_url(own), limits=limits))
    apart = opened(SqlUnique(async_url(own), apart=True, limits=limits))
    prepared(guard)
    assert await transfer(guard, task("before")) == "ran"
    hold, elsewhere = await guard.begin(task()), await apart.begin(task("elsewhere"))
    await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
    plain = guard.begin_sync(task("plain"))
    own.kill()
    with pytest.raises(GuardUnavailable):
        await guard.finish(hold)
    with pytest.raises(GuardUnavailable):
        guard.finish_sync(plain)
    await away(guard)
    with pytest.raises(GuardUnavailable):
        await guard.check()
    finishing = asyncio.create_task(apart.finish(elsewhere))  # its effect is there: it must be recorded
    await asyncio.wait({finishing}, timeout=0.6)
    assert not finishing.done()
    await asyncio.to_thread(own.launch)
    await finishing
    await guard.check()
    assert await apart.seen(task("elsewhere")) is True
    assert await transfer(guard, task(token=2)) == "ran"
    assert await transfer(guard, task("before", token=2)) == "seen"
    with guard(task("plain", token=2)):
        pass
    assert effects(guard) == {"before": 1, "order-7": 1}

    guard._aio._seconds = 2.0  # not the usual 22
    hold = await guard.begin(task("silent"))
    own.pause()
    for step in (guard.begin(task("other")), guard.check(), guard.finish(hold)):
        with pytest.raises(GuardUnavailable, match="no answer within 2 s"):
            await step
    own.resume()
    guard._aio._seconds = 60.0
    await asyncio.gather(*(transfer(guard, task(f"more-{number}", token=2)) for number in range(6)))
    with pytest.raises(
        (Seen, GuardBusy)
    ):  # whether that COMMIT had come through was unknown; it is known now
        await _run_twice(guard)


async def _run_twice(guard: SqlGuard) -> None:
    for token in (2, 3):
        async with guard(task("silent", token=token)):
            pass


@pytest.mark.parametrize("own", ["postgresql"], indirect=True)
async def test_abandon_and_check_wait_no_longer_for_a_silent_server_than_a_worker_has_time(
    own: DatabaseServer, opened: Opened
) -> None:
    limits = SqlLimits(lock_timeout_ms=600_000, max_connections=5)  # a task may wait for 1,220 s
    guard, apart = (
        opened(SqlUnique(async_url(own), limits=limits)),
        opened(SqlUnique(async_url(own), apart=True, limits=limits)),
    )
    prepared(guard)
    hold, other = await guard.begin(task()), await apart.begin(task("other"))
    own.pause()
    async with asyncio.timeout(90):
        await asyncio.gather(guard.abandon(hold), apart.abandon(other))
        with pytest.raises(GuardUnavailable):
            await guard.check()
    own.resume()
    while sql(guard, "SELECT 1 FROM delayq_processed"):  # noqa: ASYNC110 -- it ends in the background
        await asyncio.sleep(0.05)


@POSTGRESQL
async def test_what_the_handlers_own_sql_raises_stays_what_it_is(database: Database, make: Make) -> None:
    guard = make(SqlUnique, limits=HASTY)
    engine = create_engine(database.sync_url)
    sql(guard, "CREATE TABLE once (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    async def run(statement: str) -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(text(statement))

    async def loses_another_connection() -> None:
        async with guard(task()):
            with engine.connect() as other:
                pid = other.scalar(text("SELECT pg_backend_pid()"))
                sql(guard, "SELECT pg_terminate_backend(:pid)", pid=pid)
                other.execute(text("SELECT 1"))

    for statement in ("SELECT 1/0", "SELECT * FROM nowhere", "INSERT INTO orders (id) VALUES (1)"):
        with pytest.raises(DBAPIError):
            await run(statement)
    with pytest.raises(DBAPIError):
        await loses_another_connection()
    with pytest.raises(SQLAlchemyError, match="once_id_key"):  # a deferred constraint, at the COMMIT
        await run("INSERT INTO once VALUES (1), (1)")
    assert await guard.seen(task()) is False
    engine.dispose()


@POSTGRESQL
async def test_runs_that_cannot_be_put_in_an_order_come_again(database: Database, make: Make) -> None:
    """SERIALIZABLE, as a database may be set up: the guard's step is put off, without charge."""
    guard = make(SqlPessimistic, limits=HASTY)
    sql(guard, f"ALTER DATABASE \"{database.name}\" SET default_transaction_isolation = 'serializable'")
    await guard.close()
    ended = await asyncio.gather(*(transfer(guard, task(token=token)) for token in range(10)))
    assert sorted(ended) == ["ran"] + ["seen"] * 9
    assert effects(guard) == {"order-7": 1}


KILLED = """
import asyncio, sys
from contextlib import AsyncExitStack
from tests.guards.sql_bank import EFFECT, HASTY, KINDS, task

async def main():
    async with AsyncExitStack() as runs:
        for kind in sys.argv[2:]:
            hold = await runs.enter_async_context(KINDS[kind](sys.argv[1], limits=HASTY)(task(kind)))
            await hold.connection.execute(EFFECT, {"id": kind, "token": 1})
        print("inside", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_that_is_killed_inside_leaves_nothing_and_holds_nothing(
    database: Database, make: Make
) -> None:
    # SQLite lets one transaction in at a time.
    kinds = [*KINDS] if database.kind != "sqlite" else ["sql-pessimistic"]
    guards: list[SqlGuard] = [make(KINDS[kind], limits=SqlLimits(lock_timeout_ms=60_000)) for kind in kinds]
    argv = [sys.executable, "-c", KILLED, database.async_url, *kinds]
    with subprocess.Popen(  # noqa: ASYNC220 -- it is killed while we wait for it
        argv, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"inside\n"
        run.send_signal(signal.SIGKILL)
        async with asyncio.timeout(30):
            for guard in guards:
                assert await transfer(guard, task(guard.name, token=2)) == "ran"
    assert effects(guards[0]) == dict.fromkeys(kinds, 1)


def test_drivers_words_are_short_and_on_one_line_and_never_hold_the_password() -> None:
    from sqlalchemy import make_url  # noqa: PLC0415 -- here only

    url = make_url(f"postgresql://{USER}:{PASSWORD}@host/test")
    words = errors.driver_message(RuntimeError(f"cannot\nlog in with {PASSWORD} " + "x" * 500), url)
    assert words.startswith("cannot log in with *** xxx")
    assert len(words) == errors.MAX_TEXT


def test_an_autocommit_engine_is_no_guards() -> None:
    with pytest.raises(ValueError, match="AUTOCOMMIT"):
        SqlUnique(create_engine("sqlite:///x", execution_options={"isolation_level": "AUTOCOMMIT"}))


def test_what_is_no_url_is_refused_without_being_quoted() -> None:
    for url in (
        f"{PASSWORD}",
        f"oracle://{USER}:{PASSWORD}@h/d",
        f"postgresql+pg8000://{USER}:{PASSWORD}@h/d",
        "mysql:///x",
    ):
        with pytest.raises(InvalidDocument) as raised:
            SqlUnique(url)
        assert PASSWORD not in str(raised.value)
