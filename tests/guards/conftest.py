"""What tests of guards ask for: real servers, one of each kind a session, and a fresh database in one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.databases import DatabaseServer, MariaDB, Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASES = ("postgresql", "mariadb", "sqlite")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Shared: leave it running. A test that stops or pauses one starts its own."""
    server = Postgres.start(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """Shared, in the same way."""
    server = MariaDB.start(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@dataclass(frozen=True)
class Database:
    """An empty database: its kind, URLs of it for either kind of engine, and the server, if it has one."""

    kind: str
    name: str
    async_url: str
    sync_url: str
    server: DatabaseServer | None = None


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Of each kind in turn. Of some: `@pytest.mark.parametrize("database", ["postgresql"], indirect=True)`."""
    if request.param == "sqlite":
        file = tmp_path / "test.sqlite"
        yield Database("sqlite", str(file), f"sqlite+aiosqlite:///{file}", f"sqlite:///{file}")
        return
    server, driver = {"postgresql": ("postgres", "psycopg"), "mariadb": ("mariadb", "aiomysql")}[
        request.param
    ]
    running: DatabaseServer = request.getfixturevalue(server)
    name = f"test_{uuid4().hex}"
    running.create_database(name)
    yield Database(request.param, name, running.url(driver, name), running.url(database=name), running)
    running.drop_database(name)
