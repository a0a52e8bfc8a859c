"""The ledger's statements on an open connection, each of them one round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, delete, false, insert, literal_column, or_, select, tuple_, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from delayq.guards.sql.table import DONE, MAX_ID_BYTES, MAX_QUEUE_BYTES, NOW, RUNNING, TABLE, Ago

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert
    from sqlalchemy.sql import ColumnElement

    from delayq.protocol.envelope import Task

_ROW = TABLE.c
# prune() keeps the row of an incomplete run for the retention, the handler's timeout, and this time.
INCOMPLETE_SECONDS = 3600
ROWS: Final = 500  # of one statement: databases bound its parameters


class Row(NamedTuple):
    """The ledger's row of a task."""

    state: str
    token: int
    version: int
    began_at: datetime

    @property
    def done(self) -> bool:
        """Whether the task has taken effect."""
        return self.state == DONE


def add(connection: Connection, task: Task, state: str) -> bool:
    """Add the task's row; False when there is one. Waits for a transaction that has added it and is still open."""
    # Without preserve_rowcount, SQLAlchemy does not keep the row count of an INSERT.
    kept = _insert(connection).values(_values(task, state)).inline().execution_options(preserve_rowcount=True)
    return connection.execute(kept).rowcount == 1


def add_all(connection: Connection, tasks: Sequence[Task], state: str) -> dict[str, Row]:
    """Add the rows of these tasks in their order; return the row of each ID, which may be an earlier one."""
    rows: dict[str, Row] = {}
    for at in range(0, len(tasks), ROWS):
        part = tasks[at : at + ROWS]
        connection.execute(_insert(connection).values([_values(task, state) for task in part]).inline())
        ours = and_(_ROW.queue == part[0].queue, _ROW.task_id.in_([task.id for task in part]))
        asked = select(_ROW.task_id, _ROW.state, _ROW.token, _ROW.version, _ROW.began_at).where(ours)
        rows |= {task_id: Row(*found) for task_id, *found in connection.execute(asked)}
    return rows


def remove_all(connection: Connection, tasks: Sequence[Task]) -> None:
    """Delete the rows of these runs."""
    own = and_(_ROW.queue == bindparam("its_queue"), _ROW.task_id == bindparam("its_id"))
    ours = delete(TABLE).where(own, _ROW.token == bindparam("its_token"))
    rows = [{"its_queue": task.queue, "its_id": task.id, "its_token": task.token} for task in tasks]
    connection.execute(ours, rows)


def _values(task: Task, state: str) -> dict[str, Any]:
    _check(task)
    return {
        "queue": task.queue,
        "task_id": task.id,
        "state": state,
        "token": task.token,
        "version": 0,
        "began_at": NOW,
        "done_at": NOW if state == DONE else None,
    }


def _insert(connection: Connection) -> Insert:
    """Return an INSERT that skips rows whose task has one already."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(TABLE).on_conflict_do_nothing()
    if connection.dialect.name == "sqlite":
        return sqlite.insert(TABLE).on_conflict_do_nothing()
    return mysql.insert(TABLE).prefix_with("IGNORE")


def ensure(connection: Connection, task: Task) -> None:
    """Add a row to lock or to compare, if there is none. MariaDB's insert would wait for a row that is locked."""
    if connection.dialect.name in ("postgresql", "sqlite") or look(connection, task) is None:
        add(connection, task, RUNNING)


def _check(task: Task) -> None:
    """Refuse an id that a database would truncate into another task's."""
    if len(task.id.encode()) > MAX_ID_BYTES or len(task.queue.encode()) > MAX_QUEUE_BYTES:
        expected = f"at most {MAX_ID_BYTES} bytes of id and {MAX_QUEUE_BYTES} of queue"
        raise ValueError(f"expected {expected}, got {len(task.id.encode())} and {len(task.queue.encode())}")


def look(
    connection: Connection, task: Task, *, lock: bool = False, nowait: bool = False, skip_locked: bool = False
) -> Row | None:
    """Return the task's row; with `lock`, locked until the transaction ends."""
    asked = select(_ROW.state, _ROW.token, _ROW.version, _ROW.began_at).where(_own(task))
    if lock:
        asked = asked.with_for_update(nowait=nowait, skip_locked=skip_locked)
    found = connection.execute(asked).one_or_none()
    return None if found is None else Row(*found)


def complete(connection: Connection, task: Task, *, version: int | None = None) -> bool:
    """Mark the task done; return False if the row has another token, or another `version`."""
    ours = _ROW.token == task.token if version is None else _ROW.version == version
    values = {"state": DONE, "done_at": NOW, "version": _ROW.version + 1}
    changed = update(TABLE).where(_own(task), _ROW.state == RUNNING, ours).values(values)
    return connection.execute(changed).rowcount == 1


def take_over(connection: Connection, task: Task, token: int) -> bool:
    """Take over an earlier run's row; False if another run was faster."""
    values = {"token": task.token, "began_at": NOW}
    changed = update(TABLE).where(_own(task), _ROW.state == RUNNING, _ROW.token == token).values(values)
    return connection.execute(changed).rowcount == 1


def remove(connection: Connection, task: Task) -> None:
    """Delete the row of this run, if it is running."""
    connection.execute(delete(TABLE).where(_own(task), _ROW.state == RUNNING, _ROW.token == task.token))


def forget(connection: Connection, queue: str, task_id: str, *, done: bool) -> str | None:
    """Delete the row of an incomplete run, with `done` any row; return its state, None for no row."""
    own = and_(_ROW.queue == queue, _ROW.task_id == task_id)
    state = connection.execute(select(_ROW.state).where(own).with_for_update()).scalar_one_or_none()
    if state is not None and (done or state != DONE):
        connection.execute(delete(TABLE).where(own))
    return state


def prune(connection: Connection, queue: str | None, *, kept: int, run: int, batch: int) -> int:
    """Delete at most `batch` rows: done more than `kept` seconds ago, or too old for a run in progress."""
    done = and_(_ROW.done_at.is_not(None), _ROW.done_at < Ago(kept))
    incomplete = and_(_ROW.done_at.is_(None), _ROW.began_at < Ago(kept + run + INCOMPLETE_SECONDS))
    old = and_(_ROW.began_at < Ago(kept), or_(done, incomplete))
    if queue is not None:
        old = and_(_ROW.queue == queue, old)
    if connection.dialect.name == "sqlite":
        row: ColumnElement[int] = literal_column("rowid")
        found = select(row).select_from(TABLE).where(old).limit(batch)
        return connection.execute(delete(TABLE).where(row.in_(found))).rowcount
    keys = select(_ROW.queue, _ROW.task_id).where(old).limit(batch)
    if connection.dialect.name == "postgresql":
        free = keys.with_for_update(skip_locked=True)
        return connection.execute(delete(TABLE).where(tuple_(_ROW.queue, _ROW.task_id).in_(free))).rowcount
    # MariaDB's DELETE waits for every row that it scans, also for rows of running tasks: first select without locks.
    rows = [{"its_queue": queue, "its_id": task_id} for queue, task_id in connection.execute(keys)]
    if rows:
        own = and_(_ROW.queue == bindparam("its_queue"), _ROW.task_id == bindparam("its_id"))
        connection.execute(delete(TABLE).where(own, old), rows)
    return len(rows)


def probe(connection: Connection) -> None:
    """Run each kind of statement without an effect: fails if the table is missing, different or read-only."""
    no_row = and_(_ROW.queue == "", _ROW.task_id == "")
    nothing = select(TABLE).where(false())
    connection.execute(nothing)
    connection.execute(insert(TABLE).from_select(list(_ROW.keys()), nothing))
    connection.execute(update(TABLE).where(no_row).values(version=0))
    connection.execute(delete(TABLE).where(no_row))


def _own(task: Task) -> ColumnElement[bool]:
    return and_(_ROW.queue == task.queue, _ROW.task_id == task.id)
