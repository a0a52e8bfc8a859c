"""A transaction whose waits are bounded, on any of the databases. Not here: what is done in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection, RootTransaction

    from delayq.guards.sql.settings import Limits

# One round trip; true: until the end of the transaction.
_POSTGRESQL = text(
    "SELECT set_config('lock_timeout', :lock, true), "
    "set_config('idle_in_transaction_session_timeout', :idle, true), set_config('delayq.whole', 'yes', true)"
)
_STILL: Final = "SELECT current_setting('delayq.whole', true) = 'yes'"
_MARK: Final = "delayq_whole"
_IN_TRANSACTION: Final = 2  # libpq's PQTRANS_INTRANS: neither over nor in error
NOT_WHOLE: Final = (
    "the guard's transaction was over before its block: the handler committed it or rolled it back, changed a table's "
    "definition, or went on after an error of its SQL; begin_nested() makes a savepoint around what may fail"
)


def begin(connection: Connection, limits: Limits) -> RootTransaction:
    """Begin one. It waits for locks no longer than allowed, and ends by itself when its worker stands still."""
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


def _begin_sqlite(connection: Connection, limits: Limits) -> None:
    """Take the only lock that SQLite has at once: a transaction that reads first may never get it any more."""
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {limits.lock_timeout_ms:d}")
    if not getattr(connection.connection.driver_connection, "in_transaction", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def mark(connection: Connection) -> None:
    """Leave something in the transaction that is gone when the database rolls it back or commits it by itself.

    MariaDB does one at a deadlock and the other before it changes a table's definition, and says neither at COMMIT.
    """
    if connection.dialect.name != "postgresql":
        connection.exec_driver_sql(f"SAVEPOINT {_MARK}")


def whole(connection: Connection, transaction: RootTransaction) -> bool:
    """Tell whether all that was done since `mark` is still there to be committed.

    PostgreSQL answers the COMMIT of a transaction in which a statement failed by rolling back, and drivers take that
    for a success. After a ROLLBACK or COMMIT in the handler's own words, of which SQLAlchemy has not heard, they begin
    another transaction with the next statement: only a setting that ended with ours tells the two apart. psycopg knows
    without asking when there is none, or another statement is still running.
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
        return bool(connection.exec_driver_sql(_STILL).scalar())
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
