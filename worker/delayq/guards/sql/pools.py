"""The connection pools of a guard's database, for synchronous code and for the event loop.

Synchronous code runs its steps here, in the caller's thread. Not here: steps on the event loop (aio.py).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from sqlalchemy import Engine, QueuePool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from delayq.errors import GuardBusy, GuardUnavailable
from delayq.guards.sql import urls
from delayq.guards.sql.engines import CONNECT_SECONDS, Engines, Pool, aio_engine, plain_engine
from delayq.guards.sql.errors import translated
from delayq.guards.sql.settings import Source, SqlLimits, always
from delayq.guards.sql.transaction import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from delayq.guards.sql.engines import SqlHold

Database: TypeAlias = str | Source | Engine | AsyncEngine
T = TypeVar("T")
PERSIST_SECONDS: Final = 15.0
"""How long to retry the record of a finished run with effects elsewhere: a database restarts faster."""
PAUSE_SECONDS: Final = 0.5
_AUTOCOMMIT = "expected an engine with transactions, got one with isolation_level AUTOCOMMIT"


class Pools:
    """The engines of one database."""

    url: Source
    """str() of a URL hides the password; errors name urls.where()."""

    def __init__(self, database: Database, limits: SqlLimits) -> None:
        """A user's own engine is used as it is: without limits, and not disposed of."""
        self._given = database if isinstance(database, Engine | AsyncEngine) else None
        if isinstance(database, Engine | AsyncEngine):
            if database.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
                raise ValueError(_AUTOCOMMIT)
            self.url = always(database.url)
        else:
            self.url = always(urls.parse(database)) if isinstance(database, str) else database
        given = self._given is not None
        plain = self._given_plain if given else partial(plain_engine, limits=limits)
        aio = self._given_aio if given else partial(aio_engine, limits=limits)
        self._plain, self._aio = Engines(self.url, plain, given=given), Engines(self.url, aio, given=given)
        self._threaded: tuple[URL, bool] | None = None
        _ = self.threaded  # raises InvalidDocument now if no driver is installed

    @property
    def threaded(self) -> bool:
        """Whether the event loop has to use the synchronous driver, in threads."""
        if self._given is not None:
            return isinstance(self._given, Engine)
        url = self.url()
        if self._threaded is None or self._threaded[0] != url:
            found = urls.aio(url) is None  # looks for installed modules, which takes a while
            if found:
                urls.plain(url)
            self._threaded = url, found
        return self._threaded[1]

    def need_plain(self) -> None:
        """InvalidDocument when no driver for synchronous code is installed."""
        if self._given is None:
            urls.plain(self.url())

    @property
    def in_use(self) -> bool:
        """Whether the event loop would have to wait for a connection of the pool now."""
        pool = (self._plain if self.threaded else self._aio).pool()
        return isinstance(pool, QueuePool) and pool.checkedout() >= pool.size()

    def _given_plain(self, _: URL) -> Engine:
        if isinstance(self._given, Engine):
            return self._given
        raise TypeError(
            "`with guard(task)` expects a URL or an Engine, the guard was made with an AsyncEngine"
        )

    def _given_aio(self, _: URL) -> AsyncEngine:
        assert isinstance(self._given, AsyncEngine)  # noqa: S101 -- see threaded
        return self._given

    def open(self) -> tuple[Pool[Engine], Connection]:
        """Take a connection; the limits bound the waits for the pool and for the server."""
        pool = self._plain.take()
        try:
            return pool, pool.engine.connect()
        except BaseException:
            self._plain.give(pool)
            raise

    def close(self, pool: Pool[Engine], connection: Connection) -> None:
        """Roll back, and return the connection to the pool. Raises nothing: a broken connection is discarded."""
        with suppress(SQLAlchemyError, OSError):
            connection.close()
        self._plain.give(pool)
        self._dispose_plain()

    async def open_aio(self) -> tuple[Pool[AsyncEngine], AsyncConnection]:
        """Do the same as open() on the event loop."""
        pool = self._aio.take()
        try:
            return pool, await _connected(pool.engine)
        except BaseException:
            self._aio.give(pool)
            raise

    async def close_aio(self, pool: Pool[AsyncEngine], connection: AsyncConnection) -> None:
        """Do the same as close() on the event loop."""
        try:
            with suppress(SQLAlchemyError, OSError):
                await connection.close()
        finally:
            self._aio.give(pool)
        await self._dispose_aio()

    def begin(self, step: Callable[[Connection], SqlHold]) -> SqlHold:
        """Take a connection; the hold keeps it while its transaction is open."""
        with translated(self.url, begins=True):
            pool, connection = self.open()
            hold = None
            try:
                hold = step(connection)
                if hold.transaction is not None:
                    hold.pool, hold.connection = pool, connection
                return hold
            finally:
                if hold is None or hold.pool is None:
                    self.close(pool, connection)

    def finish(self, hold: SqlHold, step: Callable[[Connection], None]) -> None:
        """Run the step on the hold's connection, and return that to the pool."""
        try:
            with translated(self.url):
                if hold.connection.closed:
                    raise RuntimeError(ENDED_EARLY)
                step(hold.connection)
        finally:
            self.abandon(hold)

    def abandon(self, hold: SqlHold) -> None:
        """Roll back, and return the hold's connection to the pool."""
        if hold.pool is not None:
            self.close(hold.pool, hold.connection)

    def once(self, step: Callable[[Connection], T]) -> T:
        """Run one step on a connection of the pool."""
        with translated(self.url):
            pool, connection = self.open()
            try:
                return step(connection)
            finally:
                self.close(pool, connection)

    def persist(self, step: Callable[[Connection], T]) -> T:
        """Run one step; retry for 15 s while the database is unavailable."""
        deadline = time.monotonic() + PERSIST_SECONDS
        while True:
            try:
                return self.once(step)
            except (GuardBusy, GuardUnavailable):
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def end(self) -> None:
        """Close the pool of synchronous code; holds keep their connections until they end."""
        self._plain.retire()
        self._dispose_plain()

    async def end_aio(self) -> None:
        """Close everything."""
        self.end()
        self._aio.retire()
        await self._dispose_aio()

    def _dispose_plain(self) -> None:
        for engine in self._plain.unused():
            engine.dispose()

    async def _dispose_aio(self) -> None:
        for engine in self._aio.unused():
            await engine.dispose()


async def _connected(engine: AsyncEngine) -> AsyncConnection:
    """Connect. When cancelled, finish connecting, then close: a server keeps a half-open connection for long."""
    connecting = asyncio.ensure_future(_start(engine))
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({connecting}, timeout=CONNECT_SECONDS)
        finally:
            if not connecting.cancel() and not connecting.cancelled() and connecting.exception() is None:
                await connecting.result().close()
        raise


async def _start(engine: AsyncEngine) -> AsyncConnection:
    return await engine.connect()
