"""A database that is not there, does not answer, or does not let us in: no attempt is charged."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delayq.errors import GuardBusy, GuardUnavailable, InvalidDocument, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.guards.sql import errors
from delayq.guards.sql.settings import Limits
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
SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
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
    with pytest.raises(GuardUnavailable) as told:
        await guard.begin(task(**more))
    assert told.value.charge is False
    assert PASSWORD not in str(told.value) + repr(told.value.__cause__) + str(told.value.__cause__)
    return told.value


def nobody() -> int:
    """A port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "mysql", "mysql+aiomysql"])
async def test_a_server_that_is_not_there_is_told_with_its_address_and_no_password(
    scheme: str, caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    caplog.set_level(logging.DEBUG)
    port = nobody()
    guard = opened(SqlUnique(f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/test", limits=HASTY))
    told = await away(guard)
    assert told.where == f"{scheme.partition('+')[0]}://127.0.0.1:{port}/test"
    with pytest.raises(GuardUnavailable):
        await guard.check()
    if "asyncpg" not in scheme:
        with pytest.raises(GuardUnavailable):
            guard.begin_sync(task())
    assert PASSWORD not in caplog.text + repr(guard) + repr(vars(guard))


async def test_a_server_that_is_silent_while_we_connect_is_away() -> None:
    """As one that is stopped, or behind a firewall: the kernel accepts, and nobody says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        async def tried(scheme: str) -> None:
            guard = SqlUnique(f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/test", limits=HASTY)
            guard._aio._seconds = 7.0  # aiomysql waits for ever, others for 5 s
            plain = (
                asyncio.to_thread(guard.begin_sync, task()) if scheme == "postgresql" else guard.begin(task())
            )
            first, told = await asyncio.gather(away(guard), plain, return_exceptions=True)
            assert isinstance(first, GuardUnavailable)
            assert isinstance(told, GuardUnavailable)
            await guard.close()

        await asyncio.gather(*(tried(scheme) for scheme in ("postgresql", "postgresql+asyncpg", "mysql")))


@SERVERS
async def test_a_wrong_password_or_database_is_told_without_it(database: Database) -> None:
    for url in (
        database.async_url.replace(PASSWORD, "wrong-too"),
        database.async_url.replace(database.name, "nope"),
    ):
        guard = SqlUnique(url, limits=HASTY)
        told = await away(guard)
        assert "wrong-too" not in str(told)
        await guard.close()


async def test_a_missing_table_is_told_with_the_command_that_makes_it(database: Database) -> None:
    for made in KINDS.values():
        guard = made(database.async_url, limits=HASTY)
        assert "delayq guard init" in str(await away(guard))
        with pytest.raises(GuardUnavailable, match="delayq guard init"):
            await guard.check()
        with pytest.raises(GuardUnavailable, match="delayq guard init"):
            guard.begin_sync(task())
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
async def test_a_user_without_rights_is_told_by_the_check(database: Database, make: Make) -> None:
    guard = make(SqlUnique, limits=HASTY)
    user = f"reader_{database.name[-8:]}"
    sql(guard, f"CREATE USER {user} PASSWORD 'guest'")
    sql(guard, f"GRANT SELECT ON delayq_processed TO {user}")
    reader = SqlUnique(database.async_url.replace(f"{USER}:{PASSWORD}", f"{user}:guest"), limits=HASTY)
    with pytest.raises(GuardUnavailable, match="permission denied"):
        await reader.check()
    await reader.close()
    sql(guard, f"DROP OWNED BY {user}")
    sql(guard, f"DROP USER {user}")


@POSTGRESQL
async def test_too_many_connections_are_the_databases_trouble_and_not_the_tasks(
    database: Database, make: Make
) -> None:
    guard = make(SqlUnique, limits=HASTY)
    user = f"few_{database.name[-8:]}"
    sql(guard, f"CREATE USER {user} SUPERUSER PASSWORD 'guest'")
    sql(guard, f"ALTER USER {user} NOSUPERUSER CONNECTION LIMIT 1")
    sql(guard, f"GRANT ALL ON delayq_processed TO {user}")
    few = SqlUnique(database.async_url.replace(f"{USER}:{PASSWORD}", f"{user}:guest"), limits=HASTY)
    hold = await few.begin(task())
    assert "too many connections" in str(await away(few, id="other"))
    await few.abandon(hold)
    await few.close()
    sql(guard, f"DROP OWNED BY {user}")
    sql(guard, f"DROP USER {user}")


async def test_a_restart_of_the_server_fails_the_runs_in_it_and_none_after(
    own: DatabaseServer, opened: Opened
) -> None:
    guard = opened(SqlUnique(async_url(own), limits=HASTY))
    prepared(guard)
    assert await transfer(guard, task("before")) == "ran"
    hold = await guard.begin(task())
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
    own.launch()
    await guard.check()
    assert await transfer(guard, task(token=2)) == "ran"
    assert await transfer(guard, task("before", token=2)) == "seen"
    with guard(task("plain", token=2)):
        pass
    assert effects(guard) == {"before": 1, "order-7": 1}


async def test_what_was_done_elsewhere_is_written_down_when_the_server_is_back(
    own: DatabaseServer, opened: Opened
) -> None:
    guard = opened(SqlUnique(async_url(own), apart=True, limits=HASTY))
    prepared(guard)
    hold = await guard.begin(task())
    own.stop()
    finishing = asyncio.create_task(guard.finish(hold))
    await asyncio.wait({finishing}, timeout=0.6)
    assert not finishing.done()
    await asyncio.to_thread(own.launch)
    await finishing
    assert await guard.seen(task()) is True


async def test_a_server_that_does_not_answer_is_given_up_and_what_it_holds_is_let_go(
    own: DatabaseServer,
    opened: Opened,
) -> None:
    guard = opened(SqlUnique(async_url(own), limits=Limits(lock_timeout_ms=1000, max_connections=3)))
    guard._aio._seconds = 2.0  # not the usual 22
    prepared(guard)
    assert await transfer(guard, task("before")) == "ran"
    hold = await guard.begin(task())
    own.pause()
    with pytest.raises(GuardUnavailable, match="no answer within 2 s"):
        await guard.begin(task("other"))
    with pytest.raises(GuardUnavailable, match="no answer within 2 s"):
        await guard.check()
    with pytest.raises(GuardUnavailable, match="no answer within 2 s"):
        await guard.finish(hold)
    own.resume()
    guard._aio._seconds = 60.0
    assert await transfer(guard, task("other", token=2)) == "ran"
    await asyncio.gather(*(transfer(guard, task(f"more-{number}")) for number in range(6)))
    with pytest.raises(
        (Seen, GuardBusy)
    ):  # whether that COMMIT had come through was known to nobody; it is now
        await _until_known(guard)


@pytest.mark.parametrize("own", ["postgresql"], indirect=True)
async def test_leaving_and_looking_wait_for_a_silent_server_no_longer_than_a_worker_has_time(
    own: DatabaseServer,
    opened: Opened,
) -> None:
    limits = Limits(lock_timeout_ms=600_000, max_connections=5)
    guard, apart = (
        opened(SqlUnique(async_url(own), limits=limits)),
        opened(SqlUnique(async_url(own), apart=True, limits=limits)),
    )
    prepared(guard)
    hold, other = await guard.begin(task()), await apart.begin(task("other"))
    own.pause()
    began = time.monotonic()
    await asyncio.gather(guard.abandon(hold), apart.abandon(other))
    assert time.monotonic() - began < 60  # and not the 1220 s that a task may wait
    with pytest.raises(GuardUnavailable):
        await guard.check()
    assert time.monotonic() - began < 90
    own.resume()
    while sql(guard, "SELECT 1 FROM delayq_processed"):  # noqa: ASYNC110 -- it ends in the background
        await asyncio.sleep(0.05)


async def _until_known(guard: SqlGuard) -> None:
    async with guard(task(token=2)):
        pass
    async with guard(task(token=3)):
        pass


@POSTGRESQL
async def test_what_the_handlers_own_sql_raises_stays_what_it_is(make: Make) -> None:
    guard = make(SqlUnique, limits=HASTY)

    async def run(statement: str) -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(text(statement))

    for statement in ("SELECT 1/0", "SELECT * FROM nowhere", "INSERT INTO orders (id) VALUES (1)"):
        with pytest.raises(DBAPIError):
            await run(statement)


@POSTGRESQL
async def test_another_database_that_a_handler_loses_is_the_handlers_trouble(
    database: Database, make: Make
) -> None:
    guard = make(SqlUnique, limits=HASTY)
    engine = create_engine(database.sync_url)

    async def run() -> None:
        async with guard(task()):
            with engine.connect() as other:
                pid = other.scalar(text("SELECT pg_backend_pid()"))
                sql(guard, "SELECT pg_terminate_backend(:pid)", pid=pid)
                other.execute(text("SELECT 1"))

    with pytest.raises(DBAPIError):
        await run()
    engine.dispose()


@POSTGRESQL
async def test_a_deferred_constraint_that_fails_at_the_commit_is_the_handlers_trouble(
    make: Make,
) -> None:
    guard = make(SqlUnique, limits=HASTY)
    sql(guard, "CREATE TABLE once (id INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    async def run() -> None:
        async with guard(task()) as hold:
            await hold.connection.execute(text("INSERT INTO once VALUES (1), (1)"))

    with pytest.raises(SQLAlchemyError, match="once_id_key"):
        await run()
    assert await guard.seen(task()) is False


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
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from tests.guards.sql_bank import EFFECT, HASTY, KINDS, task

async def main():
    guard = KINDS[sys.argv[1]](sys.argv[2], limits=HASTY)
    async with guard(task()) as hold:
        await hold.connection.execute(EFFECT, {"id": "order-7", "token": 1})
        print("inside", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_process_that_is_killed_inside_leaves_nothing_and_holds_nothing(
    database: Database, kind: str, make: Make
) -> None:
    guard: SqlGuard = make(KINDS[kind], limits=Limits(lock_timeout_ms=60_000))
    argv = [sys.executable, "-c", KILLED, kind, database.async_url]
    with subprocess.Popen(  # noqa: ASYNC220 -- it is killed while we wait for it
        argv, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"inside\n"
        run.send_signal(signal.SIGKILL)
        began = time.monotonic()
        assert await transfer(guard, task(token=2)) == "ran"
    assert time.monotonic() - began < 30
    assert effects(guard) == {"order-7": 1}


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
        with pytest.raises(InvalidDocument) as told:
            SqlUnique(url)
        assert PASSWORD not in str(told.value)
