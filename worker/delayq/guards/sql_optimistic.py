"""sql-optimistic: a row per task, compared and set at the end. No lock is held while a handler runs.

Several runs of a task can be in progress; the first to commit takes effect, and the others are rolled back. The row is
the user's, whose statements compare a version or a status, or one of the ledger.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from delayq.contract import guard as contract
from delayq.errors import InvalidDocument, Seen
from delayq.guards.sql import ledger
from delayq.guards.sql.engines import SqlHold
from delayq.guards.sql.errors import away
from delayq.guards.sql.guard import SqlGuard
from delayq.guards.sql.pools import Database
from delayq.guards.sql.settings import SqlLimits
from delayq.guards.sql.statements import READS, WRITES, Statement
from delayq.protocol.envelope import Task

FIELD = "spec.guard.sqlOptimistic"
_BEFORE = "delayq_before"
HANDLER_CHANGED = (
    f"{FIELD}.update changed no row, because the handler had changed the columns that it compares: "
    f"only {FIELD}.update may change them"
)


class SqlOptimistic(SqlGuard):
    """Compare and set, by a version or a status."""

    name = "sql-optimistic"

    def __init__(
        self,
        database: Database,
        *,
        queue: str | None = None,
        select: str | None = None,
        update: str | None = None,
        apart: bool = False,
        limits: SqlLimits | None = None,
    ) -> None:
        """The columns of `select` are parameters of `update`. InvalidDocument when they cannot be used."""
        super().__init__(database, queue=queue, apart=apart, limits=limits or SqlLimits())
        if select is not None and update is None:
            raise InvalidDocument(f"{FIELD}: select needs update")
        self._select = None if select is None else Statement(select, field=f"{FIELD}.select", begins=READS)
        self._update = None if update is None else Statement(update, field=f"{FIELD}.update", begins=WRITES)
        if self._select is not None:
            self._select.check_parameters()
        elif self._update is not None:
            self._update.check_parameters()
        self.prepares_row = self._update is None

    def set_apart(self, *, apart: bool) -> None:
        """See SqlGuard."""
        super().set_apart(apart=apart)
        self.keeps_transaction = not apart

    @classmethod
    def options(cls, spec: contract.SqlOptimistic, *, apart: bool) -> dict[str, Any]:
        """Return the options that the document sets."""
        return {"select": spec.select, "update": spec.update, "apart": apart}

    def enter(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- a version, or a row's columns
        """Read what `leave` compares."""
        if self._update is None:
            row = ledger.look(connection, task)
            if row is None or row.done:
                raise Seen
            return row.version
        facts = self._read(connection, task)
        if self.keeps_transaction:
            connection.exec_driver_sql(f"SAVEPOINT {_BEFORE}")
        return facts

    def _read(self, connection: Connection, task: Task) -> dict[str, Any]:
        if self._select is None:
            return {}
        found = self._select.run(connection, task).mappings().first()
        if found is None:
            raise Seen
        return dict(found)

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Change the row; Seen if another run has changed it."""
        if self._update is None:
            changed = ledger.complete(connection, hold.task, version=hold.facts)
        else:
            changed = self._update.run(connection, hold.task, hold.facts).rowcount != 0
            if not changed and hold.transaction is not None:
                self._refuse_own_change(connection, hold, self._update)
        if not changed:
            raise Seen("another run of the task has taken effect meanwhile")

    def _refuse_own_change(self, connection: Connection, hold: SqlHold, update: Statement) -> None:
        """Raise RuntimeError if the handler changed the row: without the handler's writes, `update` finds it.

        The handler's writes are rolled back in either case. Seen would ack the task, which would never take effect.
        """
        connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_BEFORE}")
        if update.run(connection, hold.task, hold.facts).rowcount != 0:
            raise RuntimeError(HANDLER_CHANGED)

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Return whether the task has taken effect; None without a query."""
        if self._update is None:
            return super().has(connection, task)
        if self._select is None:
            return None
        return self._select.run(connection, task).first() is None

    def probe(self, connection: Connection) -> None:
        """Run the user's query, check its columns against `update`, and EXPLAIN that."""
        if self._update is None:
            super().probe(connection)
            return
        if self._select is not None:
            self._update.check_parameters(self._select.try_out(connection).keys())
        self._update.explain(connection)
        postgres = connection.dialect.name == "postgresql"  # its EXPLAIN succeeds on a replica, too
        if postgres and connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on":
            raise away(self.where, "its transactions are read-only")
