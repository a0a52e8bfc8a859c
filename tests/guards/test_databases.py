"""The harness itself: real servers that start quickly, lose nothing that was committed, and leave nothing behind."""

from __future__ import annotations

import os
import select
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.databases import DatabaseServer, MariaDB, Postgres
from tests.families import children, states
from tests.processes import PATIENCE_SECONDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.guards.conftest import Database

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[Postgres, MariaDB])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseServer]:
    kind: type[DatabaseServer] = request.param
    server = kind.start(tmp_path)
    yield server
    server.stop()


def test_a_fresh_database_is_reached_by_a_synchronous_engine(database: Database) -> None:
    engine = create_engine(database.sync_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (id INTEGER PRIMARY KEY)"))
        connection.execute(text("INSERT INTO effects VALUES (7)"))
        assert connection.scalar(text("SELECT id FROM effects")) == 7
    engine.dispose()


async def test_a_fresh_database_is_reached_by_an_asynchronous_engine(database: Database) -> None:
    engine = create_async_engine(database.async_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effects (id INTEGER PRIMARY KEY)"))
        await connection.execute(text("INSERT INTO effects VALUES (7)"))
        assert await connection.scalar(text("SELECT id FROM effects")) == 7
    await engine.dispose()


async def test_postgresql_is_reached_by_asyncpg_too(postgres: Postgres) -> None:
    engine = create_async_engine(postgres.url("asyncpg"))
    async with engine.connect() as connection:
        assert await connection.scalar(text("SELECT 7")) == 7
    await engine.dispose()


def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_not(server: DatabaseServer) -> None:
    server.sql("CREATE TABLE effects (id INTEGER PRIMARY KEY)")
    server.sql("INSERT INTO effects VALUES (7)")
    engine = create_engine(server.url())
    with engine.connect() as connection:
        connection.execute(text("INSERT INTO effects VALUES (8)"))
        server.kill()
        with pytest.raises(OperationalError):
            connection.commit()
        connection.invalidate()
    engine.dispose()
    server.restart()
    assert server.sql("SELECT id FROM effects") == [(7,)]


def test_a_restart_keeps_port_and_data_and_does_not_wait_for_clients(server: DatabaseServer) -> None:
    server.sql("CREATE TABLE effects (id INTEGER PRIMARY KEY)")
    url, engine = server.url(), create_engine(server.url())
    with engine.connect() as connection:
        connection.execute(text("SELECT id FROM effects"))
        server.restart()
        connection.invalidate()
    engine.dispose()
    assert (server.url(), server.sql("SELECT id FROM effects")) == (url, [])


def test_a_paused_server_stands_still_with_all_its_processes_until_it_may_go_on(
    server: DatabaseServer,
) -> None:
    server.pause()
    pid = server.process.pid
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(server.sql, "SELECT 7")
        # What had just ended (Z) has to wait for its parent.
        assert set.union(*map(states, [pid, *children(pid)])) - {"Z"} == {"T"}
        assert not answer.done()
        server.resume()
        assert answer.result(PATIENCE_SECONDS) == [(7,)]


@pytest.mark.parametrize("kind", ["Postgres", "MariaDB"])
def test_a_server_dies_with_the_process_that_started_it(kind: str, tmp_path: Path) -> None:
    script = f"""
import signal, sys
from pathlib import Path
from tests.databases import {kind}
from tests.families import children
pid = {kind}.start(Path(sys.argv[1])).process.pid
print("started", pid, *children(pid))
signal.pause()
"""
    with running(sys.executable, "-c", script, str(tmp_path), cwd=ROOT) as process:
        server, *others = [int(word) for word in process.wait_line("^started").split()[1:]]
        handles = [os.pidfd_open(server)]
        for child in others:
            with suppress(ProcessLookupError):  # PostgreSQL has children that live for a moment
                handles.append(os.pidfd_open(child))
        process.kill()
        for handle in handles:
            assert select.select([handle], [], [], PATIENCE_SECONDS)[0] == [handle]
            os.close(handle)
