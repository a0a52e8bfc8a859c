"""What tests of guards ask for: real servers, one of each kind a session, and a fresh database in one of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

import pytest

from tests.databases import DatabaseServer, MariaDB, Postgres
from tests.guards.sql_bank import prepared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from delayq.guards import Guard
    from delayq.guards.sql.guard import SqlGuard

G = TypeVar("G", bound="Guard[Any]")
S = TypeVar("S", bound="SqlGuard")
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


class Opened(Protocol):
    """Takes a guard that the test has made."""

    def __call__(self, guard: G) -> G:
        """Return it; it is closed at the end of the test."""


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    guards: list[Guard[Any]] = []

    def keep(guard: G) -> G:
        guards.append(guard)
        return guard

    yield keep
    await asyncio.gather(*(guard.close() for guard in guards))


class Make(Protocol):
    """Makes a guard of a kind, by default for the test's database."""

    def __call__(self, kind: type[S], /, **options: Any) -> S:  # noqa: ANN401 -- those of the kind
        """Return it; it is closed at the end of the test."""


@pytest.fixture
def make(database: Database, opened: Opened) -> Make:
    """The first guard makes the tables."""

    def make(kind: type[S], /, **options: Any) -> S:  # noqa: ANN401 -- as above
        guard = kind(database.async_url, **options)
        if not made:
            prepared(guard)
        made.append(guard)
        return opened(guard)

    made: list[SqlGuard] = []
    return make
