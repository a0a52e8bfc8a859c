"""sql-pessimistic: a row per task, locked while the handler runs. Another run waits, or is tried again later.

The row is the user's, and the task is done when the user's query no longer finds it; or it is one of the ledger.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from delayq.contract import guard as contract
from delayq.contract.guard import RowWait
from delayq.errors import GuardLost, InvalidDocument, Seen
from delayq.guards.sql import ledger
from delayq.guards.sql.engines import SqlHold
from delayq.guards.sql.errors import busy
from delayq.guards.sql.guard import SqlGuard
from delayq.guards.sql.pools import Database
from delayq.guards.sql.settings import SqlLimits
from delayq.guards.sql.statements import READS, Statement
from delayq.protocol.envelope import Task

FIELD = "spec.guard.sqlPessimistic"
_LOCKS: dict[RowWait, str] = {
    "Wait": "FOR UPDATE",
    "NoWait": "FOR UPDATE NOWAIT",
    "SkipLocked": "FOR UPDATE SKIP LOCKED",
}


class SqlPessimistic(SqlGuard):
    """One run at a time, by a row lock that lasts as long as its transaction."""

    name = "sql-pessimistic"
    takes_batches = True

    def __init__(
        self,
        database: Database,
        *,
        queue: str | None = None,
        select: str | None = None,
        wait: RowWait = "Wait",
        limits: SqlLimits | None = None,
    ) -> None:
        """`select` returns the rows to lock, or none once the task is done. InvalidDocument if it cannot be used."""
        super().__init__(database, queue=queue, apart=False, limits=limits or SqlLimits())
        self._wait: RowWait = wait
        self._select = None if select is None else Statement(select, field=f"{FIELD}.select", begins=READS)
        self.prepares_row = self._select is None
        if self._select is not None:
            self._select.check_parameters()
            if self._select.locking:
                raise InvalidDocument(
                    f"{FIELD}.select: expected no FOR UPDATE or other lock clause: {FIELD}.wait adds it"
                )

    @classmethod
    def options(cls, spec: contract.SqlPessimistic, *, apart: bool) -> dict[str, Any]:
        """Return the options that the document sets."""
        del apart  # the lock is held in either case
        return {"select": spec.select, "wait": spec.wait}

    def enter(self, connection: Connection, task: Task) -> int | None:
        """Lock the row; return the version of a ledger's row."""
        if self._select is None:
            return self._enter_ledger(connection, task)
        if not self._found(connection, self._select, task, _LOCKS[self._wait]):
            if self._wait == "SkipLocked" and self._found(connection, self._select, task, ""):
                raise busy("another transaction has locked the task's row")
            raise Seen
        return None

    def _enter_ledger(self, connection: Connection, task: Task) -> int:
        nowait, skip = self._wait == "NoWait", self._wait == "SkipLocked"
        row = ledger.look(connection, task, lock=True, nowait=nowait, skip_locked=skip)
        if row is None:
            raise busy("another transaction has locked the task's row")
        if row.done:
            raise Seen
        return row.version

    def _found(self, connection: Connection, select: Statement, task: Task, lock: str) -> bool:
        """Run the query with the lock clause. SQLite has no row locks: its transaction locks the database."""
        end = "" if connection.dialect.name == "sqlite" else lock
        found = select.run(connection, task, end=end).first() is not None
        if found and end and connection.dialect.name == "postgresql":
            # After a lock wait, PostgreSQL reads the locked row again, but other tables as they were before the wait.
            return select.run(connection, task).first() is not None
        return found

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Mark the ledger's row done; a user's row is done when the query no longer finds it."""
        if self._select is None and not ledger.complete(connection, hold.task, version=hold.facts):
            raise GuardLost("the task's row was deleted while it was locked")

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Return whether the task has taken effect, without a lock."""
        if self._select is None:
            return super().has(connection, task)
        return not self._found(connection, self._select, task, "")

    def probe(self, connection: Connection) -> None:
        """Run the user's query with its lock clause and NULL parameters."""
        if self._select is None:
            super().probe(connection)
            return
        end = "" if connection.dialect.name == "sqlite" else _LOCKS[self._wait]
        self._select.try_out(connection, end=end)
