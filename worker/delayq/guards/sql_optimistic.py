"""sql-optimistic: a row per task, changed only if nobody changed it meanwhile. Nobody waits while a handler runs.

Several runs may go on at once; the first to commit has done it, and what the others did is rolled back. The row is one
that the user's statements read and change, by a version or a status; or one of the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from delayq.errors import InvalidDocument, Seen
from delayq.guards.sql import ledger, setting
from delayq.guards.sql.guard import SqlGuard
from delayq.guards.sql.limits import Limits
from delayq.guards.sql.statements import READS, WRITES, Statement

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from delayq.connection import Address
    from delayq.contract import DelayQueue
    from delayq.guards.sql.hold import SqlHold
    from delayq.guards.sql.pools import Database
    from delayq.message import Task

FIELD = "spec.guard.sqlOptimistic"


class SqlOptimistic(SqlGuard):
    """Compare and set."""

    name = "sql-optimistic"

    def __init__(
        self,
        database: Database,
        *,
        queue: str | None = None,
        select: str | None = None,
        update: str | None = None,
        apart: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """The columns of `select` are parameters of `update`. InvalidDocument when they cannot be used."""
        super().__init__(database, queue=queue, apart=apart, limits=limits or Limits())
        if select is not None and update is None:
            raise InvalidDocument(f"{FIELD}: select needs update")
        self._select = None if select is None else Statement(select, field=f"{FIELD}.select", begins=READS)
        self._update = None if update is None else Statement(update, field=f"{FIELD}.update", begins=WRITES)
        if self._select is not None:
            self._select.know()
        elif self._update is not None:
            self._update.know()
        self.holding, self.prepares = not apart, self._update is None

    @classmethod
    def of(
        cls,
        queue: DelayQueue,
        _address: Address | None,
        *,
        secrets_dir: Path,
        apart: bool,
        url: str | None = None,
    ) -> Self:
        """Make the guard that a document describes; InvalidDocument when it cannot be. `url` overrides the Secret."""
        spec = queue.spec.guard.sql_optimistic if queue.spec.guard else None
        assert spec is not None  # noqa: S101 -- guards.build asks for what is there
        return cls(
            setting.source(spec, FIELD, secrets_dir, url),
            queue=queue.queue,
            select=spec.select,
            update=spec.update,
            apart=apart,
            limits=setting.limits(queue, spec),
        )

    def prepare(self, connection: Connection, task: Task) -> None:
        """Add the ledger's row, for there is nothing to compare otherwise."""
        ledger.ensure(connection, task)

    def enter(self, connection: Connection, task: Task) -> Any:  # noqa: ANN401 -- a version, or a row's columns
        """Read what is to be the same afterwards."""
        if self._update is None:
            row = ledger.look(connection, task)
            if row is None or row.done:
                raise Seen
            return row.version
        if self._select is None:
            return {}
        found = self._select.run(connection, task).mappings().first()
        if found is None:
            raise Seen
        return dict(found)

    def leave(self, connection: Connection, hold: SqlHold) -> None:
        """Change it; whoever finds it changed already rolls back."""
        if self._update is None:
            changed = ledger.complete(connection, hold.task, version=hold.facts)
        else:
            changed = self._update.run(connection, hold.task, hold.facts).rowcount != 0
        if not changed:
            raise Seen("another run of the task has taken effect meanwhile")

    def has(self, connection: Connection, task: Task) -> bool | None:
        """Ask; nobody can tell where there is nothing to ask."""
        if self._update is None:
            return super().has(connection, task)
        if self._select is None:
            return None
        return self._select.run(connection, task).first() is None

    def probe(self, connection: Connection) -> None:
        """Try the user's query, whose columns have to suffice, and have the other statement looked at."""
        if self._update is None:
            super().probe(connection)
            return
        if self._select is not None:
            self._update.know(self._select.try_out(connection).keys())
        self._update.explain(connection)
