"""The connection pools of a guard's database, for synchronous code and for the event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import Engine, QueuePool
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from delayq.guards.sql import urls
from delayq.guards.sql.engines import CONNECT_SECONDS, Engines, Pool, aio_engine, plain_engine
from delayq.guards.sql.settings import always

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from delayq.guards.sql.settings import Limits, Source

Database: TypeAlias = "str | Source | Engine | AsyncEngine"
_AUTOCOMMIT = "expected an engine with transactions, got one with isolation_level AUTOCOMMIT"


class Pools:
    """The engines of one database."""

    url: Source
    """str() of a URL hides the password; errors name urls.where()."""

    def __init__(self, database: Database, limits: Limits) -> None:
        """A user's own engine is used as it is: without limits, and not disposed of."""
        self._given = database if isinstance(database, Engine | AsyncEngine) else None
        if isinstance(database, Engine | AsyncEngine):
            if database.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
                raise ValueError(_AUTOCOMMIT)
            self.url = always(database.url)
        else:
            self.url = always(urls.parse(database)) if isinstance(database, str) else database
        self._plain = Engines(
            self.url, self._given_plain if self._given else partial(plain_engine, limits=limits)
        )
        self._aio = Engines(self.url, self._given_aio if self._given else partial(aio_engine, limits=limits))
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
            if engine is not self._given:
                engine.dispose()

    async def _dispose_aio(self) -> None:
        for engine in self._aio.unused():
            if engine is not self._given:
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
