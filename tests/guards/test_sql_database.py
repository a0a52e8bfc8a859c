"""Where a guard's database is: URLs as people have them, a Secret that is rotated, engines of the user's own."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import DelayQueue, parse
from delayq.errors import GuardUnavailable, InvalidDocument, Seen
from delayq.guards import SqlUnique, build
from delayq.guards.sql import urls
from delayq.handlers.python import PythonHandler
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import PASSWORD, USER
from tests.guards.sql_bank import HASTY, effects, prepared, sql, task, transfer, transfer_sync
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.guards.sql.guard import SqlGuard
    from delayq.protocol.envelope import Task

    from tests.guards.conftest import Database, Opened

POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
GUARDS: dict[str, dict[str, Any]] = {
    "sqlUnique": {"onIncompleteRun": "Bury"},
    "sqlPessimistic": {"select": "SELECT 1 FROM orders WHERE id = :payload_order", "wait": "SkipLocked"},
    "sqlOptimistic": {"update": "UPDATE orders SET status = 'done' WHERE id = :payload_order"},
}


def guarded(guard: str, **options: object) -> DelayQueue:
    spec = {"databaseSecretRef": {"name": "shop-database"}, "lockTimeoutMilliseconds": 1000, **options}
    return parse(document(guard={guard: spec}))


def mounted(directory: Path, url: str) -> Path:
    (directory / "shop-database").mkdir(exist_ok=True)
    file = directory / "shop-database" / "url"
    file.write_text(url + "\n")
    return file


def made(queue: DelayQueue, directory: Path, *, apart: bool = False) -> SqlGuard:
    nowhere: Any = None  # no SQL guard asks where Redis is
    guard: Any = build(queue, nowhere, secrets_dir=directory, apart=apart)
    found: SqlGuard = guard
    return found


@pytest.mark.parametrize(
    ("given", "aio", "plain"),
    [
        ("postgres://u:p@h/d?sslmode=require", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql://u:p@h:1/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+psycopg_async://u:p@h/d", "postgresql+psycopg", "postgresql+psycopg"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg", "postgresql+psycopg"),
        ("postgresql:///d?host=/run/postgresql", "postgresql+psycopg", "postgresql+psycopg"),
        ("mysql://u:p@h/d", "mysql+aiomysql", "mysql+pymysql"),
        ("mariadb+pymysql://u:p@h/d", "mysql+aiomysql", "mysql+pymysql"),
        ("sqlite:////data/x", "sqlite+aiosqlite", "sqlite+pysqlite"),
    ],
)
def test_a_url_as_people_have_it_finds_its_drivers(given: str, aio: str, plain: str) -> None:
    url = urls.parse(f" {given}\n")
    found = urls.aio(url)
    assert found is not None
    assert (found.drivername, urls.plain(url).drivername) == (aio, plain)


@pytest.mark.parametrize(
    ("missing", "url", "install"),
    [
        ("psycopg", "postgres://u:p@h/d", "delayq[sql]"),
        ("aiomysql", "mysql://u:p@h/d", "delayq[mysql]"),
        ("psycopg2", "postgresql+psycopg2://u:p@h/d", "psycopg2"),
        ("asyncpg", "postgresql+asyncpg://u:p@h/d", "asyncpg"),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_the_field_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, missing: str, url: str, install: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(urls, "find_spec", lambda name: None if name == missing else find(name))
    mounted(tmp_path, url)
    with pytest.raises(InvalidDocument) as raised:
        made(guarded("sqlUnique"), tmp_path)
    assert str(raised.value).startswith("spec.guard.sqlUnique.databaseSecretRef: ")
    assert f"{missing} for" in str(raised.value)
    assert str(raised.value).endswith(f"is not installed: install {install}")


async def coroutine(_task: Task, connection: object) -> None:
    """Wants an AsyncConnection."""


def plain(_task: Task, connection: object) -> None:
    """Wants a Connection."""


async def test_sqlite_without_asyncio_runs_in_threads_and_a_handler_that_no_driver_can_serve_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: Opened
) -> None:
    find, missing = importlib.util.find_spec, {"aiosqlite"}
    present = {"psycopg2": "json"}  # which is not called
    monkeypatch.setattr(
        urls, "find_spec", lambda name: None if name in missing else find(str(present.get(name, name)))
    )
    handlers = [PythonHandler(f"{__name__}:{each.__name__}", concurrency=1, transactions=True)
                for each in (coroutine, plain)]  # fmt: skip
    guard = opened(SqlUnique(f"sqlite:///{tmp_path / 'x.sqlite'}", limits=HASTY))
    prepared(guard)
    async with guard(task()) as hold:
        assert type(hold.connection).__name__ == "Connection"
    with pytest.raises(Seen):
        await guard.begin(task(token=2))
    with pytest.raises(InvalidDocument) as refused:
        handlers[0].under(guard)
    assert str(refused.value).startswith(f'spec.guard: "{__name__}:coroutine" is a coroutine function, ')
    assert str(refused.value).endswith(
        "install aiosqlite (pip install aiosqlite), or make it a plain function (def)"
    )
    handlers[1].under(guard)
    with pytest.raises(InvalidDocument, match="name psycopg or asyncpg in the URL instead of psycopg2"):
        handlers[0].under(SqlUnique("postgresql+psycopg2://u:p@h/d"))
    missing.add("psycopg")
    other = SqlUnique("postgresql+asyncpg://u:p@h/d")
    handlers[0].under(other)
    with pytest.raises(InvalidDocument, match="psycopg for postgresql is not installed"):
        handlers[1].under(other)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_secret_that_is_not_there_or_holds_no_url_is_named_and_not_quoted(
    tmp_path: Path, guard: str
) -> None:
    with pytest.raises(
        InvalidDocument, match=rf"^spec\.guard\.{guard}\.databaseSecretRef: cannot read .*url: No such"
    ) as lacking:
        made(guarded(guard), tmp_path)
    assert "; or set $DELAYQ_DATABASE_URL instead" in str(lacking.value)
    mounted(tmp_path, f"postgresql://{USER}:{PASSWORD}@@:x/y/")
    with pytest.raises(InvalidDocument, match=r"databaseSecretRef: .*expected a database URL") as raised:
        made(guarded(guard), tmp_path)
    assert PASSWORD not in str(raised.value)


async def test_a_document_makes_the_guard_it_describes_and_the_environment_may_name_another_database(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounted(tmp_path, database.sync_url)
    for kind, options in GUARDS.items():
        found = made(guarded(kind, **options), tmp_path, apart=True)
        if kind == "sqlUnique":
            prepared(found)
        await found.check()
        assert type(found).__name__.lower() == kind.lower()
        assert (found.queue, found.limits.lock_timeout_ms, found.limits.run_seconds) == ("orders", 1000, 300)
        assert PASSWORD not in found.where
        await found.close()
        found.close_sync()
    mounted(tmp_path, "postgresql://nobody@nowhere.invalid/x")
    monkeypatch.setenv("DELAYQ_DATABASE_URL", database.async_url)
    with caplog.at_level(logging.INFO):
        guard = made(guarded("sqlUnique"), tmp_path)
    assert [record.message for record in caplog.records] == ["database_overridden"]
    assert PASSWORD not in str(vars(caplog.records[0]))
    await guard.check()
    await guard.close()
    monkeypatch.setenv("DELAYQ_DATABASE_URL", f"nothing{PASSWORD}")
    with pytest.raises(InvalidDocument, match=r"^\$DELAYQ_DATABASE_URL: expected") as refused:
        made(guarded("sqlUnique"), tmp_path)
    assert PASSWORD not in str(refused.value)


def test_the_bounds_of_a_document_fit_each_other(tmp_path: Path) -> None:
    """A slot without a connection would be put off again and again, and a wait beyond the time limit be charged."""
    mounted(tmp_path, "sqlite:////data/x")
    queue = guarded("sqlUnique", lockTimeoutMilliseconds=600_000)
    limits = made(queue, tmp_path).limits
    assert limits.max_connections == queue.spec.worker.concurrency + 1
    assert limits.lock_timeout_ms == queue.spec.delivery.handler_timeout_seconds * 1000 / 2
    assert made(guarded("sqlUnique", maxConnections=7), tmp_path).limits.max_connections == 7


@POSTGRESQL
async def test_a_rotated_secret_is_taken_up_and_runs_that_go_on_keep_their_connection(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    file = mounted(tmp_path, database.async_url)
    guard = made(guarded("sqlUnique"), tmp_path)
    prepared(guard)
    owner = f"next_{database.name[-8:]}"
    sql(guard, f"CREATE USER {owner} SUPERUSER PASSWORD 'rotated'")
    hold = await guard.begin(task("long"))
    old = guard._pools._aio._current
    file.write_text(database.async_url.replace(f"{USER}:{PASSWORD}", f"{owner}:rotated"))
    async with guard(task()) as new:
        assert await new.connection.scalar(text("SELECT current_user")) == owner
    await guard.finish(hold)
    assert old is not None
    assert old.users == 0
    assert guard._pools._aio._retired == []
    with caplog.at_level(logging.WARNING):
        file.write_text("no URL at all")
        assert await transfer(guard, task(token=2)) == "seen"
        file.unlink()
        assert await transfer(guard, task("long", token=2)) == "seen"
    assert {record.message for record in caplog.records} == {"secret_unreadable"}
    assert "rotated" not in caplog.text
    await guard.close()
    keeper = opened(SqlUnique(database.async_url))
    sql(keeper, f"REASSIGN OWNED BY {owner} TO {USER}")
    sql(keeper, f"DROP USER {owner}")


@POSTGRESQL
async def test_asyncpg_serves_a_guard_too_also_behind_a_proxy(database: Database, opened: Opened) -> None:
    """It prepares statements; one that is kept by name is unknown on a proxy's other connection."""
    guard = opened(SqlUnique(database.async_url.replace("psycopg", "asyncpg"), limits=HASTY))
    prepared(guard)
    await guard.check()
    ended = await asyncio.gather(*(transfer(guard, task(token=token)) for token in range(20)))
    assert sorted(ended) == ["ran"] + ["seen"] * 19
    async with guard(task("proxied")) as hold:
        for _ in range(5):
            await hold.connection.execute(text("SELECT COUNT(*) FROM effects"))
        kept = await hold.connection.execute(text("SELECT statement, name FROM pg_prepared_statements"))
        rows = kept.all()
    assert [words for words, _ in rows if "effects" in words] == []
    assert all(name.startswith("__delayq_") for _, name in rows)
    first = await guard.begin(task("other"))
    with pytest.raises(GuardUnavailable), guard(task("x")):
        sql(guard, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND datname = current_database()")  # fmt: skip
    with pytest.raises(GuardUnavailable):
        await guard.finish(first)


async def test_an_engine_of_the_users_own_is_used_and_left_alone(database: Database, opened: Opened) -> None:
    """A plain one serves the event loop too, in threads; an asynchronous one serves nothing else."""
    engine, aio = create_engine(database.sync_url), create_async_engine(database.async_url)
    guard, on_loop = SqlUnique(engine, limits=HASTY), SqlUnique(aio, limits=HASTY)
    prepared(guard)
    assert transfer_sync(guard, task()) == "ran"
    async with guard(task("threaded")):
        pass
    assert await transfer(on_loop, task("on-loop")) == "ran"
    with pytest.raises(TypeError, match="expects a URL or an Engine"):
        on_loop.begin_sync(task())
    for each in (guard, on_loop):
        await each.close()
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    async with aio.connect() as connected:
        assert await connected.scalar(text("SELECT 1")) == 1
    looks = opened(SqlUnique(database.sync_url))
    assert effects(looks) == {"order-7": 1, "on-loop": 1}
    engine.dispose()
    await aio.dispose()
