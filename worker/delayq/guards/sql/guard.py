"""What the SQL guards have in common: where the steps of begin, finish and abandon run, and what their errors mean.

A guard is a strategy: a few methods that are given a synchronous Connection. They run on the event loop (SQLAlchemy's
run_sync), or in the thread of whoever calls, with the same statements. Not here: the statements.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.errors import GuardBusy, GuardLost, GuardUnavailable
from delayq.guards.base import Guard
from delayq.guards.sql import ledger, urls
from delayq.guards.sql import transaction as transactions
from delayq.guards.sql.blocks import SqlGuarded
from delayq.guards.sql.hold import SqlHold
from delayq.guards.sql.install import install
from delayq.guards.sql.keeper import Keeper
from delayq.guards.sql.pools import Pools
from delayq.guards.sql.threads import in_thread
from delayq.guards.sql.translation import translated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sqlalchemy import Connection

    from delayq.guards.sql.limits import Limits
    from delayq.guards.sql.pools import Database
    from delayq.message import Task

log = logging.getLogger(__name__)
T = TypeVar("T")
CLOSE_SECONDS, BATCH = 5.0, 1000


class SqlGuard(Guard[SqlHold]):
    """A guard with rows in a database."""

    prepares = False
    """Whether there is something to commit before the transaction begins."""
    holding = True
    """Whether the transaction stays open while the handler runs."""
    given_up: Callable[[], bool] = staticmethod(lambda: False)
    """In a thread: tells that nobody waits for the handler any more, so that nothing may be committed."""

    def __init__(self, database: Database, *, queue: str | None, apart: bool, limits: Limits) -> None:
        """`apart`: what the handler does is not done through the hold's connection."""
        self.queue, self.apart, self.limits = queue, apart, limits
        self._pools, self._keeper = Pools(database, limits), Keeper()

    # The strategy: what a guard says of itself.

    def prepare(self, connection: Connection, task: Task) -> None:
        """Do what has to be committed before the transaction begins."""

    def enter(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- each guard's own
        """Let the task run, or raise Seen, GuardBusy, Bury; what it returns is the hold's facts."""
        raise NotImplementedError

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Say that the task is done, in the transaction that is committed then; or raise Seen."""

    def undo(self, connection: Connection, hold: SqlHold) -> None:
        """Forget that the task began, where no transaction has stayed open."""

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Tell whether the task has taken effect."""
        row = ledger.look(connection, task)
        return row is not None and row.done

    def probe(self, connection: Connection) -> None:
        """Find out whether all that is needed is there and may be written."""
        ledger.probe(connection)

    # On the event loop.

    def __call__(self, task: Task) -> SqlGuarded:
        """Make the context manager around one run of a task, `async with` or plain `with`."""
        return SqlGuarded(self, task)

    @property
    def where(self) -> str:
        """Where the database is, without user and password."""
        return urls.where(self._pools.url())

    async def begin(self, task: Task) -> SqlHold:
        """Let the task run."""
        if self._pools.threaded:
            step = in_thread(partial(self._begin_in_thread, task), self.abandon_sync)
        else:
            step = self._begin_aio(task)
        return await self._bounded(step, self.abandon)

    async def finish(self, hold: SqlHold) -> None:
        """Commit; raises what says that nothing, or nothing more, has taken effect."""
        if hold.threaded:
            await self._bounded(in_thread(partial(self.finish_sync, hold)))
        elif hold.pool is None:
            await self._once(partial(self._finish, hold=hold))
        else:
            await self._bounded(self._finish_aio(hold))

    async def abandon(self, hold: SqlHold) -> None:
        """Roll back, or forget that it began."""
        try:
            if hold.threaded:
                await self._bounded(in_thread(partial(self.abandon_sync, hold)))
            elif hold.pool is not None:
                await self._bounded(self._pools.close_aio(hold.pool, hold.connection))
            else:
                await self._once(partial(self._undo, hold=hold))
        except Exception as error:  # noqa: BLE001 -- what cannot be undone now, the next run finds
            self._not_abandoned(hold, error)

    async def seen(self, task: Task) -> bool | None:
        """Tell whether the task has taken effect; a run that still goes on has not."""
        return await self._once(partial(self.has, task=task))

    async def check(self) -> None:
        """Connect, and look whether everything is there. A pool that is all in use serves."""
        try:
            await self._once(self._probe)
        except GuardBusy:
            return

    async def prune(self, batch: int = BATCH) -> int:
        """Delete at most `batch` rows past their retention; returns how many: fewer than that, and all are gone."""
        return await self._once(partial(self._prune, batch=batch))

    async def install(self) -> bool:
        """Make the ledger's table unless it is there; True when that was needed. For `delayq guard init` and tests."""
        return await self._once(install)

    async def close(self) -> None:
        """Close the connections that nobody holds, the others when their holds end."""
        await self._keeper.close(CLOSE_SECONDS)
        await self._pools.end_aio()

    async def _begin_aio(self, task: Task) -> SqlHold:
        with translated(self._pools.url):
            pool, connection = await self._pools.open_aio()
            try:
                hold = await connection.run_sync(self._begin, task)
            except BaseException:
                await self._pools.close_aio(pool, connection)
                raise
            if hold.transaction is None:
                await self._pools.close_aio(pool, connection)
            else:
                hold.pool, hold.connection = pool, connection
            return hold

    async def _finish_aio(self, hold: SqlHold) -> None:
        assert hold.pool is not None  # noqa: S101 -- see finish
        try:
            with translated(self._pools.url):
                if hold.connection.closed:
                    raise RuntimeError(transactions.NOT_WHOLE)
                await hold.connection.run_sync(self._finish, hold)
        finally:
            await self._pools.close_aio(hold.pool, hold.connection)

    async def _once(self, step: Callable[[Connection], T]) -> T:
        """Take a connection for one step."""
        if self._pools.threaded:
            return await self._bounded(in_thread(partial(self._once_sync, step)))
        return await self._bounded(self._once_aio(step))

    async def _once_aio(self, step: Callable[[Connection], T]) -> T:
        with translated(self._pools.url):
            pool, connection = await self._pools.open_aio()
            try:
                return await connection.run_sync(step)
            finally:
                await self._pools.close_aio(pool, connection)

    async def _bounded(
        self, step: Coroutine[Any, Any, T], unwanted: Callable[[T], Awaitable[None]] | None = None
    ) -> T:
        try:
            return await self._keeper.within(self.limits.answer_seconds, step, unwanted)
        except TimeoutError as error:
            raise GuardUnavailable(self.where, str(error)) from None

    # In the thread of whoever calls.

    def begin_sync(self, task: Task) -> SqlHold:
        """Let the task run, in plain code."""
        with translated(self._pools.url):
            pool, connection = self._pools.open()
            try:
                hold = self._begin(connection, task)
            except BaseException:
                self._pools.close(pool, connection)
                raise
            if hold.transaction is None:
                self._pools.close(pool, connection)
            else:
                hold.pool, hold.connection = pool, connection
            return hold

    def finish_sync(self, hold: SqlHold) -> None:
        """Commit, in plain code."""
        if hold.pool is None:
            self._once_sync(partial(self._finish, hold=hold))
            return
        try:
            with translated(self._pools.url):
                if hold.connection.closed:
                    raise RuntimeError(transactions.NOT_WHOLE)
                self._finish(hold.connection, hold)
        finally:
            self._pools.close(hold.pool, hold.connection)

    def abandon_sync(self, hold: SqlHold) -> None:
        """Roll back, or forget that it began, in plain code."""
        if hold.pool is not None:
            self._pools.close(hold.pool, hold.connection)
            return
        try:
            self._once_sync(partial(self._undo, hold=hold))
        except Exception as error:  # noqa: BLE001 -- as in abandon
            self._not_abandoned(hold, error)

    def close_sync(self) -> None:
        """Close the connections of plain code that nobody holds."""
        self._pools.end()

    def _begin_in_thread(self, task: Task) -> SqlHold:
        hold = self.begin_sync(task)
        hold.threaded = True
        return hold

    def _once_sync(self, step: Callable[[Connection], T]) -> T:
        with translated(self._pools.url):
            pool, connection = self._pools.open()
            try:
                return step(connection)
            finally:
                self._pools.close(pool, connection)

    # On a connection, wherever that is.

    def _begin(self, connection: Connection, task: Task) -> SqlHold:
        if self.prepares:
            with transactions.begin(connection, self.limits):
                self.prepare(connection, task)
        transaction = transactions.begin(connection, self.limits)
        facts = self.enter(connection, task)
        if self.holding:
            transactions.mark(connection)
            return SqlHold(task, transaction=transaction, facts=facts)
        transaction.commit()
        return SqlHold(task, facts=facts)

    def _finish(self, connection: Connection, hold: SqlHold) -> None:
        transaction = hold.transaction
        if transaction is None:
            transaction = transactions.begin(connection, self.limits)
        elif not transactions.whole(connection, transaction):
            raise RuntimeError(transactions.NOT_WHOLE)
        self.leave(connection, hold)
        if self.given_up():
            raise GuardLost("the task was given up")
        transaction.commit()

    def _undo(self, connection: Connection, hold: SqlHold) -> None:
        with transactions.begin(connection, self.limits):
            self.undo(connection, hold)

    def _probe(self, connection: Connection) -> None:
        with transactions.begin(connection, self.limits) as transaction:
            self.probe(connection)
            transaction.rollback()

    def _prune(self, connection: Connection, batch: int) -> int:
        kept, run = self.limits.retention_seconds, self.limits.run_seconds
        with transactions.begin(connection, self.limits):
            return ledger.prune(connection, self.queue, kept=kept, run=run, batch=batch)

    def _not_abandoned(self, hold: SqlHold, error: Exception) -> None:
        fields = {"task_id": hold.task.id, "guard": self.name, "error": f"{type(error).__name__}: {error}"}
        log.warning("guard_not_abandoned", extra={"fields": fields})
