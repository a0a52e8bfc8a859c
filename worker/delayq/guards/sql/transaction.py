"""A transaction with bounded waits, on each of the databases. Not here: the statements in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection, RootTransaction

    from delayq.guards.sql.settings import SqlLimits

# All settings in one round trip. `true` limits a setting to the transaction.
_POSTGRESQL = text(
    "SELECT set_config('lock_timeout', :lock, true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true), set_config('delayq.intact', 'yes', true)"
)
_IS_INTACT: Final = "SELECT current_setting('delayq.intact', true) = 'yes'"
_MARK: Final = "delayq_intact"
_IN_TRANSACTION: Final = 2  # libpq's PQTRANS_INTRANS: a transaction is open and has not failed
ENDED_EARLY: Final = (
    "the guard's transaction ended before the handler did: the handler committed it or rolled it back, changed a "
    "table's definition, or continued after a failed SQL statement; run statements that may fail in a savepoint: "
    "begin_nested()"
)


def begin(connection: Connection, limits: SqlLimits) -> RootTransaction:
    """Begin a transaction. Lock waits are bounded, and the database ends it when its worker hangs."""
    transaction = connection.begin()
    match connection.dialect.name:
        case "postgresql":
            waits = {"lock": f"{limits.lock_timeout_ms}ms", "idle": f"{limits.idle_seconds}s"}
            connection.execute(_POSTGRESQL, waits)
        case "sqlite":
            _begin_sqlite(connection, limits)
        case _:
            lock, idle = f"{limits.lock_seconds:d}", f"{limits.idle_seconds:d}"
            connection.exec_driver_sql(
                f"SET SESSION innodb_lock_wait_timeout = {lock}, SESSION wait_timeout = {idle}"
            )
    return transaction


def _begin_sqlite(connection: Connection, limits: SqlLimits) -> None:
    """Take SQLite's only lock at once: a transaction that reads first may fail to get it later."""
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {limits.lock_timeout_ms:d}")
    if not getattr(connection.connection.driver_connection, "in_transaction", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def mark(connection: Connection) -> None:
    """Set a savepoint that is gone when the database itself rolls back or commits the transaction.

    MariaDB rolls back at a deadlock and commits before it changes a table's definition; COMMIT reports neither.
    """
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"SAVEPOINT {_MARK}")


def intact(connection: Connection, transaction: RootTransaction) -> bool:
    """Return whether everything since `mark` can still be committed.

    After a failed statement, PostgreSQL rolls back at COMMIT, and drivers report success. SQLAlchemy does not see a
    ROLLBACK or COMMIT in the handler's own SQL; the driver then begins another transaction with the next statement.
    Only a setting that is local to the guard's transaction distinguishes the two. psycopg reports without a round trip
    that no transaction is open, or that another statement is still running.
    """
    if not transaction.is_active:
        return False
    try:
        if connection.dialect.name != "postgresql":
            connection.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")
            return True
        driver: Any = connection.connection.driver_connection
        if hasattr(driver, "info") and int(driver.info.transaction_status) != _IN_TRANSACTION:
            return False
        return bool(connection.exec_driver_sql(_IS_INTACT).scalar())
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
