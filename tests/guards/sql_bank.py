"""What tests of SQL guards share: tasks, guards of each kind, and a table that counts effects. Not here: any test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.errors import GuardBusy, Seen
from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique
from delayq.guards.sql.settings import SqlLimits
from delayq.protocol.envelope import JSON_TYPE, Task
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

if TYPE_CHECKING:
    from delayq.guards.sql.guard import SqlGuard

PATIENT = SqlLimits(lock_timeout_ms=20_000, max_connections=10)
HASTY = SqlLimits(lock_timeout_ms=1000, max_connections=10)

KINDS: dict[str, Any] = {
    "sql-unique": SqlUnique,
    "sql-pessimistic": SqlPessimistic,
    "sql-optimistic": SqlOptimistic,
}
APART: dict[str, Any] = {"sql-unique": SqlUnique, "sql-optimistic": SqlOptimistic}


def task(
    id: str = "order-7",  # noqa: A002  the word of tasks
    *,
    token: int = 1,
    body: bytes = b'{"order": 7}',
    content_type: str = JSON_TYPE,
    queue: str = "orders",
) -> Task:
    return Task(
        id=id,
        queue=queue,
        attempt=1,
        token=token,
        due_ms=1_700_000_000_000,
        scheduled_ms=1_700_000_000_000,
        body=body,
        content_type=content_type,
        headers={},
    )


def sql(guard: SqlGuard, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """One statement on a plain connection of its own, committed."""
    pool, connection = guard._pools.open()
    try:
        found = connection.execute(text(statement), values)
        rows = [tuple(row) for row in found] if found.returns_rows else []
        connection.commit()
    finally:
        guard._pools.close(pool, connection)
    return rows


def prepared(guard: SqlGuard) -> None:
    """The ledger, a table of effects and one of orders."""
    assert guard.install_sync()
    exact = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if guard.where.startswith("mysql") else ""
    sql(guard, f"CREATE TABLE effects (task_id VARCHAR(255){exact} NOT NULL, run INTEGER NOT NULL)")
    sql(guard, "CREATE TABLE orders (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, status VARCHAR(20))")


def effects(guard: SqlGuard) -> dict[str, int]:
    return dict(sql(guard, "SELECT task_id, COUNT(*) FROM effects GROUP BY task_id"))


EFFECT = text("INSERT INTO effects VALUES (:id, :token)")


async def transfer(guard: SqlGuard, todo: Task) -> str:
    """Run a task as a worker would, until it has run or was seen."""
    while True:
        try:
            async with guard(todo) as hold:
                await hold.connection.execute(EFFECT, {"id": todo.id, "token": todo.token})
        except Seen:
            return "seen"
        except (GuardBusy, OperationalError):  # the latter: a deadlock, which is an attempt that failed
            continue
        return "ran"


def transfer_sync(guard: SqlGuard, todo: Task) -> str:
    """The same in plain code."""
    while True:
        try:
            with guard(todo) as hold:
                hold.connection.execute(EFFECT, {"id": todo.id, "token": todo.token})
        except Seen:
            return "seen"
        except (GuardBusy, OperationalError):
            continue
        return "ran"
