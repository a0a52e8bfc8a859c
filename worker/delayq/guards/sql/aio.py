"""Connections for one step or for a hold, on the event loop. Each wait for a step has a time limit."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.errors import GuardBusy, GuardUnavailable, NotStarted
from delayq.guards.sql import urls
from delayq.guards.sql.errors import away, translated
from delayq.guards.sql.pools import PAUSE_SECONDS, PERSIST_SECONDS
from delayq.guards.sql.threads import Keeper, in_thread
from delayq.guards.sql.transaction import ENDED_EARLY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sqlalchemy import Connection

    from delayq.guards.sql.engines import SqlHold
    from delayq.guards.sql.pools import Pools

T = TypeVar("T")
CLOSE_SECONDS = 5.0
ABANDON_SECONDS = 2.0
"""A cancelled handler has 10 s to end (worker.py, CANCEL_SECONDS); a slower rollback ends in the background."""
CHECK_SECONDS = 5.0
"""Probes and conditions need an answer soon, however long tasks may wait."""


class Aio:
    """Database access of the event loop: a driver with asyncio, or the synchronous driver in threads."""

    def __init__(self, pools: Pools, *, seconds: float) -> None:
        """`seconds` limits each step."""
        self._pools, self._seconds = pools, seconds
        self._keeper = Keeper()

    async def begin(
        self,
        step: Callable[[Connection], SqlHold],
        *,
        unwanted: Callable[[SqlHold], Awaitable[None]],
        unwanted_plain: Callable[[SqlHold], None],
    ) -> SqlHold:
        """Take a connection; the hold keeps it while its transaction is open. A late result is undone."""

        def begin() -> SqlHold:
            hold = self._pools.begin(step)
            hold.threaded = True
            return hold

        if self._pools.threaded:
            return await self._bounded(in_thread(begin, unwanted_plain), begins=True)
        return await self._bounded(self._begin(step), unwanted, begins=True)

    async def finish(self, hold: SqlHold, step: Callable[[Connection], None]) -> None:
        """Run the step on the hold's connection, and return that to the pool."""
        if hold.threaded:
            await self._bounded(in_thread(partial(self._pools.finish, hold, step), ends=True))
        else:
            await self._bounded(self._finish(hold, step))

    async def abandon(self, hold: SqlHold) -> None:
        """Roll back, and return the hold's connection to the pool."""
        if hold.threaded:
            await self._soon(in_thread(partial(self._pools.abandon, hold), ends=True))
        elif hold.pool is not None:
            await self._soon(self._pools.close_aio(hold.pool, hold.connection))

    async def ask(self, hold: SqlHold, step: Callable[[Connection], bool]) -> bool:
        """Run the step on the hold's connection, which the hold keeps."""
        if hold.threaded:
            return await self._soon(in_thread(partial(step, hold.connection)))
        return await self._soon(hold.connection.run_sync(step))

    async def undo(self, step: Callable[[Connection], None]) -> None:
        """Run a step that deletes the row of a failed run, within 2 s or in the background."""
        await self._soon(self._step(step))

    async def look(self, step: Callable[[Connection], None]) -> None:
        """Run a step that checks the database. A wait for the pool is not an error of the database."""
        busy = self._pools.in_use
        try:
            await self._keeper.within(min(CHECK_SECONDS, self._seconds), self._step(step))
        except TimeoutError as error:
            if not busy:
                raise self._silent(error) from None

    async def once(self, step: Callable[[Connection], T]) -> T:
        """Run one step on a connection of the pool."""
        return await self._bounded(self._step(step))

    async def persist(self, step: Callable[[Connection], T]) -> T:
        """Run one step; retry for 15 s while the database is unavailable."""
        deadline = time.monotonic() + PERSIST_SECONDS
        while True:
            try:
                return await self.once(step)
            except (GuardBusy, GuardUnavailable):
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def close(self) -> None:
        """Close the connections that are not in use."""
        await self._keeper.drain(CLOSE_SECONDS)
        await self._pools.end_aio()

    async def _begin(self, step: Callable[[Connection], SqlHold]) -> SqlHold:
        with translated(self._pools.url, begins=True):
            pool, connection = await self._pools.open_aio()
            hold = None
            try:
                hold = await connection.run_sync(step)
                if hold.transaction is not None:
                    hold.pool, hold.connection = pool, connection
                return hold
            finally:
                if hold is None or hold.pool is None:
                    await self._pools.close_aio(pool, connection)

    async def _finish(self, hold: SqlHold, step: Callable[[Connection], None]) -> None:
        try:
            with translated(self._pools.url):
                if hold.connection.closed:
                    raise RuntimeError(ENDED_EARLY)
                await hold.connection.run_sync(step)
        finally:
            if hold.pool is not None:
                await self._pools.close_aio(hold.pool, hold.connection)

    async def _step(self, step: Callable[[Connection], T]) -> T:
        if self._pools.threaded:
            return await in_thread(partial(self._pools.once, step))
        with translated(self._pools.url):
            pool, connection = await self._pools.open_aio()
            try:
                return await connection.run_sync(step)
            finally:
                await self._pools.close_aio(pool, connection)

    async def _bounded(
        self,
        step: Coroutine[Any, Any, T],
        unwanted: Callable[[T], Awaitable[None]] | None = None,
        *,
        begins: bool = False,
    ) -> T:
        try:
            return await self._keeper.within(self._seconds, step, unwanted)
        except (TimeoutError, NotStarted) as error:
            if begins and isinstance(error, NotStarted):
                raise
            raise self._silent(error) from error

    async def _soon(self, step: Coroutine[Any, Any, T]) -> T:
        seconds = min(ABANDON_SECONDS, self._seconds)
        try:
            return await self._keeper.within(seconds, step, more=self._seconds - seconds)
        except (TimeoutError, NotStarted) as error:
            raise self._silent(error) from error

    def _silent(self, error: TimeoutError | NotStarted) -> GuardUnavailable:
        return away(urls.where(self._pools.url()), str(error))
