"""What a SQL guard does on an open connection: its own statements, and the transactions around them.

All of it is plain code. Who opens the connection, and in which world, is in plain.py and aio.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.guards.sql import ledger
from delayq.guards.sql import transaction as transactions
from delayq.guards.sql.engines import SqlHold

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from delayq.guards.sql.settings import Limits
    from delayq.protocol.envelope import Task

# A check does not wait long for another transaction: an open one proves that the database serves.
CHECK_LOCK_MS = 2000


class Steps:
    """A guard's strategy. The methods without an underscore in front are each guard's own."""

    limits: Limits
    queue: str | None
    prepares = False
    """Whether the ledger's row is committed before the transaction begins, to be locked or compared in it."""
    undoes = False
    """Whether a run that failed has left something to forget, where no transaction has stayed open."""
    doubts = False
    """Whether that is kept of a run that was interrupted: it may have taken effect, and a thread of it may go on."""
    holding = True
    """Whether the transaction stays open while the handler runs."""

    def enter(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- each guard's own
        """Let the task run, or raise Seen, GuardBusy, Bury; what it returns is the hold's facts."""
        raise NotImplementedError

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Say that the task is done, in the transaction that is committed then; or raise Seen."""

    def undo(self, connection: Connection, hold: SqlHold) -> None:
        """Forget that the task began, where no transaction has stayed open."""

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Tell whether the task has taken effect; one that began and never said how it ended has not."""
        row = ledger.look(connection, task)
        return row is not None and row.done

    def probe(self, connection: Connection) -> None:
        """Find out whether all that is needed is there and may be written."""
        ledger.probe(connection)

    def _begin(self, connection: Connection, task: Task) -> SqlHold:
        if self.prepares:
            with transactions.begin(connection, self.limits):
                ledger.ensure(connection, task)
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
        transaction.commit()

    def _undone(self, connection: Connection, hold: SqlHold) -> bool:
        return hold.transaction is not None and not transactions.whole(connection, hold.transaction)

    def _undo(self, connection: Connection, hold: SqlHold) -> None:
        with transactions.begin(connection, self.limits):
            self.undo(connection, hold)

    def _probe(self, connection: Connection) -> None:
        short = replace(self.limits, lock_timeout_ms=min(self.limits.lock_timeout_ms, CHECK_LOCK_MS))
        with transactions.begin(connection, short) as transaction:
            self.probe(connection)
            transaction.rollback()

    def _forget(self, connection: Connection, queue: str, task_id: str, *, done: bool) -> str | None:
        with transactions.begin(connection, self.limits):
            return ledger.forget(connection, queue, task_id, done=done)

    def _prune(self, connection: Connection, batch: int) -> int:
        kept, run = self.limits.retention_seconds, self.limits.run_seconds
        with transactions.begin(connection, self.limits):
            return ledger.prune(connection, self.queue, kept=kept, run=run, batch=batch)
