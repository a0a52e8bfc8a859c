"""One engine for each database and process, and the hold on one of its connections."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from delayq.guards.base import Hold
from delayq.guards.sql import urls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import URL, RootTransaction

    from delayq.guards.sql.settings import SqlLimits
    from delayq.protocol.envelope import Task

E = TypeVar("E", Engine, AsyncEngine)
CONNECT_SECONDS: Final = 5
# Detect a server that vanished within about 25 s; TCP alone takes 15 minutes.
_LIBPQ: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


@dataclass(eq=False)
class Pool(Generic[E]):
    """The engine of one URL, and its number of users."""

    url: URL
    engine: E
    users: int = 0


class Engines(Generic[E]):
    """The engine of a URL that may change. Called from many threads; disposing is left to the caller."""

    def __init__(self, url: Callable[[], URL], make: Callable[[URL], E], *, given: bool) -> None:
        """`make` is called at first use, and whenever `url` returns another URL. A `given` engine is the user's own."""
        self._given = given
        self._url = url
        self._make: Callable[[URL], E] = make
        self._lock = threading.Lock()
        self._current: Pool[E] | None = None
        self._retired: list[Pool[E]] = []

    def take(self) -> Pool[E]:
        """Return the current engine; call `give` when done."""
        with self._lock:
            url = self._url()
            if self._current is None or self._current.url != url:
                self._retire()
                self._current = Pool(url, self._make(url))
            self._current.users += 1
            return self._current

    def give(self, pool: Pool[E]) -> None:
        """Record that one use has ended."""
        with self._lock:
            pool.users -= 1

    def pool(self) -> object:
        """Return the current engine's pool, None before the first use."""
        with self._lock:
            return None if self._current is None else self._current.engine.pool

    def unused(self) -> list[E]:
        """Return retired engines without users, to dispose of."""
        with self._lock:
            ended = [pool for pool in self._retired if not pool.users]
            self._retired = [pool for pool in self._retired if pool.users]
            return [] if self._given else [pool.engine for pool in ended]

    def retire(self) -> None:
        """Retire the current engine; the next caller gets a new one."""
        with self._lock:
            self._retire()

    def _retire(self) -> None:
        if self._current is not None:
            self._retired.append(self._current)
            self._current = None


def plain_engine(url: URL, limits: SqlLimits) -> Engine:
    """Make an engine for code without an event loop; it connects when it is used."""
    real = urls.plain(url)
    return create_engine(real, **_options(real, limits))


def aio_engine(url: URL, limits: SqlLimits) -> AsyncEngine:
    """Make an engine for an event loop."""
    real = urls.aio(url)
    if real is None:
        raise RuntimeError(f"there is no driver with asyncio for {url.drivername}")
    return create_async_engine(real, **_options(real, limits))


def _options(url: URL, limits: SqlLimits) -> dict[str, Any]:
    pool = {"pool_size": limits.max_connections, "max_overflow": 0, "pool_timeout": limits.pool_seconds}
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        pool = {}  # a database in memory is its only connection
    arguments = {name: value for name, value in _arguments(url, limits).items() if name not in url.query}
    return {"connect_args": arguments, "hide_parameters": True, "pool_pre_ping": True, **pool}


def _arguments(url: URL, limits: SqlLimits) -> dict[str, Any]:
    match url.get_driver_name():
        case "psycopg":
            # Behind a proxy with transaction pooling, such as PgBouncer, named prepared statements are lost.
            return {**_LIBPQ, "prepare_threshold": None}
        case "psycopg2":
            return {**_LIBPQ}
        case "asyncpg":
            # As above. asyncpg still prepares some statements, whose names must be unique behind the proxy.
            return {
                "timeout": CONNECT_SECONDS,
                "statement_cache_size": 0,
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: f"__delayq_{uuid4().hex}__",
            }
        case "pymysql" | "mysqldb":
            silent = limits.run_seconds + limits.lock_seconds + CONNECT_SECONDS
            return {"connect_timeout": CONNECT_SECONDS, "read_timeout": silent, "write_timeout": silent}
        case "aiomysql" | "asyncmy":
            return {"connect_timeout": CONNECT_SECONDS}
        case _:
            return {"timeout": limits.lock_seconds}


@dataclass(eq=False)
class SqlHold(Hold):
    """`connection` is None when no transaction stays open while the handler runs."""

    pool: Pool[Any] | None = None
    """Where the connection came from."""
    transaction: RootTransaction | None = None
    facts: Any = None
    """What the guard read when it began."""
    threaded: bool = False
    """Whether the connection belongs to a driver without asyncio."""


@dataclass(eq=False)
class SqlBatchHold(SqlHold):
    """A guard's grant for several tasks, in one transaction. `facts` are those of each task, or why it must not run."""

    tasks: Sequence[Task] = ()
    outcomes: Sequence[BaseException | None] = ()
    """Of the granted tasks; set before the block ends. Those with an exception are not marked done."""

    @property
    def granted(self) -> list[Task]:
        """The tasks to run."""
        return [task for task, facts in zip(self.tasks, self.facts, strict=True) if not _refused(facts)]

    def ended(self) -> list[BaseException | None]:
        """Return the outcome of every task."""
        own = iter(self.outcomes)
        return [facts if _refused(facts) else next(own) for facts in self.facts]


def _refused(facts: object) -> bool:
    return isinstance(facts, BaseException)
