"""The base of the SQL guards, for the event loop and for synchronous code. Not here: each guard's strategy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection

from delayq.contract import DelayQueue
from delayq.errors import GuardBusy, GuardUnavailable, InvalidDocument
from delayq.guards.base import Guard
from delayq.guards.sql import settings, urls
from delayq.guards.sql.aio import Aio
from delayq.guards.sql.engines import SqlHold
from delayq.guards.sql.errors import away, driver_message, untyped
from delayq.guards.sql.guarded import SqlGuarded
from delayq.guards.sql.pools import Database, Pools
from delayq.guards.sql.settings import SqlLimits
from delayq.guards.sql.steps import Steps
from delayq.guards.sql.table import install, problems
from delayq.protocol.envelope import Task
from delayq.service import logs

log = logging.getLogger(__name__)
BATCH = 1000


class SqlGuard(Steps, Guard[SqlHold]):
    """A guard with rows in a database."""

    def __init__(self, database: Database, *, queue: str | None, apart: bool, limits: SqlLimits) -> None:
        """`apart`: the handler does not write through the hold's connection."""
        self.queue, self.limits = queue, limits
        self.set_apart(apart=apart)
        self._pools = Pools(database, limits)
        self._aio = Aio(self._pools, seconds=limits.answer_seconds)

    @classmethod
    def of(
        cls,
        queue: DelayQueue,
        _address: object,
        *,
        secrets_dir: Path,
        apart: bool,
        url: str | None = None,
    ) -> Self:
        """Make the guard that a document describes; InvalidDocument when it cannot be. `url` overrides the Secret."""
        spec = queue.spec.guard.sql if queue.spec.guard else None
        assert spec is not None  # noqa: S101 -- guards.build() has checked it
        make: Any = cls  # each kind takes options of its own
        made: Self = make(
            settings.source(spec, secrets_dir, url),
            queue=queue.queue,
            limits=settings.limits(queue, spec),
            **cls.options(spec, apart=apart),
        )
        return made

    @classmethod
    def options(cls, spec: Any, *, apart: bool) -> dict[str, Any]:  # noqa: ANN401 -- the spec of its kind
        """Return the constructor's arguments, except database, queue and limits."""
        raise NotImplementedError

    def set_apart(self, *, apart: bool) -> None:
        """Choose whether the mark is in a transaction of its own; before the first run."""
        self.apart = apart

    def for_effects_elsewhere(self) -> Self:
        """Return the guard for handlers that do not write through its connection. Both have the same connections."""
        made = copy(self)
        made.set_apart(apart=True)
        return made

    def __call__(self, task: Task) -> SqlGuarded:
        """Make the context manager around one run of a task, for `async with` or plain `with`."""
        return SqlGuarded(self, task, partial(self._begin, task=task))

    def batch(self, tasks: Sequence[Task]) -> SqlGuarded:
        """Make the same for one call of several tasks, if `takes_batches`: one transaction with the marks of all.

        Its hold is a SqlBatchHold, which has Seen, GuardBusy and Bury of single tasks; others are raised.
        """
        return SqlGuarded(self, tasks[0], partial(self._begin_all, tasks=tasks))

    @property
    def where(self) -> str:
        """Where the database is, without user and password."""
        return urls.where(self._pools.url())

    def joined(self, function: str, *, coroutine: bool) -> None:
        """Raise InvalidDocument if no driver has a connection for this kind of function, which `function` names."""
        if not coroutine:
            self._pools.need_plain()
        elif self._pools.threaded:
            problem = (
                f"spec.guard: {function} is a coroutine function, and takes the connection to {self.where}"
            )
            cure = f"{urls.with_asyncio(self._pools.url())}, or make it a plain function (def)"
            raise InvalidDocument(f"{problem}, which needs a driver for asyncio: {cure}")

    async def begin(self, task: Task) -> SqlHold:
        """Grant a run.

        Raises Seen if the task has taken effect, GuardBusy while another run holds it or no connection is free,
        GuardUnavailable when the database is unavailable, and Bury when the task must not run: its payload lacks a
        parameter of a statement or has one of a wrong type, or an earlier run is incomplete and `on_incomplete_run` is
        Bury. Other errors of a user's statement pass through, and are failed attempts.
        """
        return await self.start(partial(self._begin, task=task))

    async def start(self, step: Callable[[Connection], SqlHold]) -> SqlHold:
        """Begin with this step. Raises as begin."""
        return await self._aio.begin(step, unwanted=self.abandon, unwanted_plain=self.abandon_sync)

    async def finish(self, hold: SqlHold) -> None:
        """Commit. Raises if nothing has taken effect, or if the result of the commit is unknown.

        Seen: another run has taken effect. GuardBusy, GuardUnavailable: as in begin; with a separate handler, after
        15 s of retries. GuardLost: the locked row is gone. RuntimeError: the handler ended the transaction itself.
        Other errors of the handler's transaction, such as those of a deferred constraint, pass through.
        """
        step = partial(self._finish, hold=hold)
        await (self._aio.persist(step) if hold.pool is None else self._aio.finish(hold, step))

    async def abandon(self, hold: SqlHold) -> None:
        """Roll back, or delete the row of the run; within 2 s, or in the background."""
        try:
            if hold.pool is not None:
                await self._aio.abandon(hold)
            elif self.undoes_begin and not (self.keeps_interrupted and hold.interrupted):
                await self._aio.undo(partial(self._undo, hold=hold))
        except Exception as error:  # noqa: BLE001 -- the next run finds the row
            self._not_abandoned(hold, error)

    async def seen(self, task: Task) -> bool | None:
        """Whether the task has taken effect; a running one has not. Raises the errors of begin, except Seen."""
        return await self._aio.once(partial(self.has, task=task))

    async def check(self) -> None:
        """Check the connection, the table and the statements within 5 s; GuardUnavailable if no task could begin.

        A fully used pool is not an error, nor is a query whose parameter types depend on a task's values.
        """
        try:
            await self._aio.look(self._probe)
        except GuardBusy:
            return
        except GuardUnavailable:
            raise
        except Exception as error:
            if not untyped(error):
                raise away(self.where, driver_message(error, self._pools.url())) from error

    async def prune(self, batch: int = BATCH) -> int:
        """Delete at most `batch` rows past their retention; return how many. Fewer than `batch` means all.

        Raises GuardBusy, GuardUnavailable, and the driver's error for an unsuitable table.
        """
        return await self._aio.once(partial(self._prune, batch=batch))

    async def forget(self, queue: str, task_id: str, *, done: bool = False) -> str | None:
        """Delete the ledger's row of an incomplete run, so that the task can run again; with `done`, any row.

        Returns the row's state: running, done, or None for no row. A run that is still in progress can succeed
        afterwards. Raises GuardBusy while another transaction locks the row, GuardUnavailable.
        """
        return await self._aio.once(partial(self._forget, queue=queue, task_id=task_id, done=done))

    async def install(self) -> bool:
        """Create the ledger's table unless it exists; return whether it was created.

        Raises GuardBusy, GuardUnavailable, and the driver's error without the right to create tables.
        """
        return await self._aio.once(install)

    async def problems(self) -> list[str]:
        """Return the differences between the table and the expected one."""
        return await self._aio.once(problems)

    async def close(self) -> None:
        """Close the idle connections, the others when their holds end."""
        await self._aio.close()

    def begin_sync(self, task: Task) -> SqlHold:
        """Begin, for code without an event loop."""
        return self.start_sync(partial(self._begin, task=task))

    def start_sync(self, step: Callable[[Connection], SqlHold]) -> SqlHold:
        """Begin with this step, for code without an event loop."""
        return self._pools.begin(step)

    def finish_sync(self, hold: SqlHold) -> None:
        """Commit, for code without an event loop."""
        step = partial(self._finish, hold=hold)
        if hold.pool is None:
            self._pools.persist(step)
        else:
            self._pools.finish(hold, step)

    def abandon_sync(self, hold: SqlHold) -> None:
        """Abandon, for code without an event loop."""
        try:
            if hold.pool is not None:
                self._pools.abandon(hold)
            elif self.undoes_begin:
                self._pools.once(partial(self._undo, hold=hold))
        except Exception as error:  # noqa: BLE001 -- as in abandon
            self._not_abandoned(hold, error)

    def install_sync(self) -> bool:
        """Install, for code without an event loop."""
        return self._pools.once(install)

    def close_sync(self) -> None:
        """Close the idle connections of code without an event loop."""
        self._pools.end()

    async def undone(self, hold: SqlHold) -> bool:
        """Whether the database has rolled back the hold's transaction; False if unknown."""
        try:
            return await self._aio.ask(hold, partial(self._undone, hold=hold))
        except Exception:  # noqa: BLE001 -- the handler has failed in any case
            return False

    def undone_sync(self, hold: SqlHold) -> bool:
        """The same for code without an event loop."""
        try:
            return self._undone(hold.connection, hold)
        except Exception:  # noqa: BLE001 -- as above
            return False

    def _not_abandoned(self, hold: SqlHold, error: Exception) -> None:
        fields = logs.of_task(hold.task) | {"guard": self.name, "error": f"{type(error).__name__}: {error}"}
        log.warning("guard_abandon_failed", extra={"fields": fields})
