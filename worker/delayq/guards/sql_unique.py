"""sql-unique: a row per finished task under a unique index. The run that inserts first continues; others get Seen.

With the handler's writes in the same transaction, the effect takes place exactly once in that database. A handler that
writes elsewhere runs between two transactions: one records that it began, the other that it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from delayq.contract import guard as contract
from delayq.contract.guard import OnIncompleteRun
from delayq.errors import Bury, GuardBusy, Seen
from delayq.guards.sql import ledger
from delayq.guards.sql.engines import SqlHold
from delayq.guards.sql.errors import busy
from delayq.guards.sql.guard import SqlGuard
from delayq.guards.sql.pools import Database
from delayq.guards.sql.settings import SqlLimits
from delayq.guards.sql.table import DONE, RUNNING
from delayq.protocol.envelope import Task
from delayq.service import logs

log = logging.getLogger(__name__)


class SqlUnique(SqlGuard):
    """A row per task under a unique index: recommended wherever there is a database."""

    name = "sql-unique"

    def __init__(
        self,
        database: Database,
        *,
        queue: str | None = None,
        on_incomplete_run: OnIncompleteRun = "Run",
        apart: bool = False,
        limits: SqlLimits | None = None,
    ) -> None:
        """`database` is a URL or an engine. `queue` bounds what prune() deletes.

        `on_incomplete_run` applies to rows that an earlier run with `apart` has left.
        """
        super().__init__(database, queue=queue, apart=apart, limits=limits or SqlLimits())
        self._on_incomplete_run = on_incomplete_run
        self.keeps_interrupted = on_incomplete_run == "Bury"

    def set_apart(self, *, apart: bool) -> None:
        """See SqlGuard."""
        super().set_apart(apart=apart)
        self.keeps_transaction = self.takes_batches = not apart
        self.undoes_begin = apart

    @classmethod
    def options(cls, spec: contract.SqlUnique, *, apart: bool) -> dict[str, Any]:
        """Return the options that the document sets."""
        return {"on_incomplete_run": spec.on_incomplete_run, "apart": apart}

    async def incomplete_run(self, task: Task) -> str:
        """Describe an incomplete run of the task, which may have taken effect; empty for none.

        `(token 3) began at 2026-11-20T09:00:00Z and did not record its end`; it may still be in progress.
        """
        row = await self._aio.once(partial(ledger.look, task=task))
        return "" if row is None or row.done else _begun(row)

    def enter(self, connection: Connection, task: Task) -> None:
        """Add the task's row. Its state is done, as a rollback removes it, or running if the handler is apart."""
        if ledger.add(connection, task, RUNNING if self.apart else DONE):
            return
        row = ledger.look(connection, task)
        if row is None:
            raise busy("the task's row has just been deleted")
        if row.done:
            raise Seen
        self._enter_incomplete(connection, task, row)

    def enter_all(self, connection: Connection, tasks: Sequence[Task]) -> list[Any]:
        """Add the rows of all tasks: two statements for up to 500."""
        rows = ledger.add_all(connection, tasks, DONE)
        return [self._found(connection, task, rows.get(task.id)) for task in tasks]

    def _found(self, connection: Connection, task: Task, row: ledger.Row | None) -> Exception | None:
        """Return why the task must not run: its row is not the one just added."""
        if row is None:
            return busy("the task's row has just been deleted")
        if row.done:
            return None if row.token == task.token else Seen()
        try:
            self._enter_incomplete(connection, task, row)
        except (GuardBusy, Bury) as refused:
            return refused
        return None

    def unmark(self, connection: Connection, tasks: Sequence[Task]) -> None:
        """Delete the rows."""
        ledger.remove_all(connection, tasks)

    def _enter_incomplete(self, connection: Connection, task: Task, row: ledger.Row) -> None:
        """Handle a row without a recorded end: that run may have taken effect, and may still be in progress."""
        if row.token > task.token:
            raise busy("a later run of the task has begun")
        if row.token < task.token:
            self._take_over(connection, task, row)
        if not self.apart:  # `leave` does not: a rollback restores the row
            ledger.complete(connection, task)

    def _take_over(self, connection: Connection, task: Task, row: ledger.Row) -> None:
        if self._on_incomplete_run == "Bury":
            raise Bury(
                f"an earlier run {_begun(row)}; it may have taken effect (spec.guard.sqlUnique.onIncompleteRun: Bury); "
                "find out whether it has; if not, run `delayq guard forget`, then redrive the task"
            )
        if not ledger.take_over(connection, task, row.token):
            raise busy("another run of the task has just begun")

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Mark the row done, unless `enter` has done so."""
        if not self.apart or ledger.complete(connection, hold.task):
            return
        row = ledger.look(connection, hold.task)
        if row is None:  # it was deleted meanwhile; the task has taken effect anyway
            ledger.add(connection, hold.task, DONE)
        if row is None or row.token != hold.task.token:  # with our token, an earlier COMMIT had succeeded
            why = "its row was deleted" if row is None else "a later run has taken over"
            fields = logs.of_task(hold.task) | {"guard": self.name, "why": why}
            log.warning("guard_lost", extra={"fields": fields})

    def undo(self, connection: Connection, hold: SqlHold) -> None:
        """Delete the row: the run is known to have failed."""
        ledger.remove(connection, hold.task)


def _begun(row: ledger.Row) -> str:
    return f"(token {row.token}) started at {row.began_at:%Y-%m-%dT%H:%M:%S}Z and did not record its end"
