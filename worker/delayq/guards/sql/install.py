"""Making the ledger's table, and looking whether the one that is there is it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError

from delayq.guards.sql.table import NAME, TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection


def install(connection: Connection) -> bool:
    """Make the table unless it is there; True when that was needed. Called by several at once, one of them makes it."""
    if inspect(connection).has_table(NAME):
        return False
    connection.rollback()
    try:
        with connection.begin():
            TABLE.create(connection)
    except DBAPIError:
        if not inspect(connection).has_table(NAME):
            raise
        return False
    return True


def problems(connection: Connection) -> list[str]:
    """Say what of the table is not as it should be."""
    seen = inspect(connection)
    columns = {column["name"] for column in seen.get_columns(NAME)}
    found = [f"column {column.name} is missing" for column in TABLE.columns if column.name not in columns]
    key = seen.get_pk_constraint(NAME)["constrained_columns"]
    if key != ["queue", "task_id"]:
        found.append(f"the primary key is ({', '.join(key)}), expected (queue, task_id)")
    options = {name.lower(): str(value) for name, value in seen.get_table_options(NAME).items()}
    engine = options.get("mysql_engine") or options.get("mariadb_engine")
    if engine is not None and engine.lower() != "innodb":
        found.append(f"its engine is {engine}, expected InnoDB, which has transactions")
    return found
