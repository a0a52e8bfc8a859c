"""The steps of a SQL guard on an open connection: its statements, and the transactions around them.

All of it is synchronous code; pools.py and aio.py open the connections, and aio.py runs steps by `run_sync`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from delayq.errors import Bury, GuardBusy, Seen
from delayq.guards.sql import ledger
from delayq.guards.sql import transaction as transactions
from delayq.guards.sql.engines import SqlBatchHold, SqlHold
from delayq.guards.sql.settings import SqlLimits
from delayq.protocol.envelope import Task

# A check waits only briefly for a lock: a lock of another transaction shows that the database works.
CHECK_LOCK_MS = 2000


class Steps:
    """A guard's strategy: each guard defines the methods without an underscore."""

    limits: SqlLimits
    queue: str | None
    prepares_row = False
    """Whether `_begin` first commits the ledger's row, in a transaction before the one that locks or compares it."""
    undoes_begin = False
    """Whether `_begin` commits a row, which a failed run must delete: it leaves no transaction open to roll back."""
    keeps_interrupted = False
    """Whether an interrupted run keeps its row: it may have taken effect, and its thread may still run."""
    keeps_transaction = True
    """Whether the transaction stays open while the handler runs."""

    def enter(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- each guard's own
        """Grant the run, or raise Seen, GuardBusy, Bury. Return the hold's `facts`."""
        raise NotImplementedError

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Mark the task done in the transaction that is about to be committed, or raise Seen."""

    def undo(self, connection: Connection, hold: SqlHold) -> None:
        """Delete the row of a failed run, where no transaction has stayed open."""

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Return whether the task has taken effect; False for an incomplete run."""
        row = ledger.look(connection, task)
        return row is not None and row.done

    def probe(self, connection: Connection) -> None:
        """Check that everything needed exists and can be written."""
        ledger.probe(connection)

    def _begin(self, connection: Connection, task: Task) -> SqlHold:
        if self.prepares_row:
            with transactions.begin(connection, self.limits):
                ledger.ensure(connection, task)
        transaction = transactions.begin(connection, self.limits)
        facts = self.enter(connection, task)
        if self.keeps_transaction:
            transactions.mark(connection)
            return SqlHold(task, transaction=transaction, facts=facts)
        transaction.commit()
        return SqlHold(task, facts=facts)

    def enter_all(self, connection: Connection, tasks: Sequence[Task]) -> list[Any]:
        """Grant the runs of tasks in the order of their IDs; return the facts of each, or why it must not run."""
        return [self._entered(connection, task) for task in tasks]

    def _entered(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- as enter
        try:
            return self.enter(connection, task)
        except (Seen, GuardBusy, Bury) as refused:
            return refused

    def unmark(self, connection: Connection, tasks: Sequence[Task]) -> None:
        """Remove what `enter_all` has written for tasks that are not done, in the same transaction."""

    def _begin_all(self, connection: Connection, tasks: Sequence[Task]) -> SqlBatchHold:
        # In the same order everywhere: two calls with tasks in common must not wait for each other.
        ordered = sorted(tasks, key=lambda task: task.id)
        if self.prepares_row:
            with transactions.begin(connection, self.limits):
                for task in ordered:
                    ledger.ensure(connection, task)
        transaction = transactions.begin(connection, self.limits)
        found = dict(zip((task.id for task in ordered), self.enter_all(connection, ordered), strict=True))
        transactions.mark(connection)
        facts = [found[task.id] for task in tasks]
        return SqlBatchHold(tasks[0], transaction=transaction, facts=facts, tasks=tasks)

    def _leave_all(self, connection: Connection, hold: SqlBatchHold) -> None:
        undone: list[Task] = []
        for task, facts, outcome in zip(hold.tasks, hold.facts, hold.ended(), strict=True):
            if outcome is None:
                self.leave(connection, SqlHold(task, transaction=hold.transaction, facts=facts))
            elif outcome is not facts:  # it has run
                undone.append(task)
        if undone:
            self.unmark(connection, undone)

    def _finish(self, connection: Connection, hold: SqlHold) -> None:
        transaction = hold.transaction
        if transaction is None:
            transaction = transactions.begin(connection, self.limits)
        elif not transactions.intact(connection, transaction):
            raise RuntimeError(transactions.ENDED_EARLY)
        if isinstance(hold, SqlBatchHold):
            self._leave_all(connection, hold)
        else:
            self.leave(connection, hold)
        transaction.commit()

    def _undone(self, connection: Connection, hold: SqlHold) -> bool:
        return hold.transaction is not None and not transactions.intact(connection, hold.transaction)

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
