"""The ledger's table: columns, the database's clock in SQL, creation and checks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, MetaData, String, Table, inspect, literal
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql.compiler import SQLCompiler

INSTANT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=3), "mysql", "mariadb")
"""UTC: PostgreSQL stores the zone, the others store none."""


class Ago(FunctionElement[datetime]):
    """The instant `seconds` before now; 0 is now."""

    type = INSTANT
    inherit_cache = True
    name = "ago"

    def __init__(self, seconds: int) -> None:
        """Bind the number as a parameter, so that the text of the statement stays the same."""
        super().__init__(literal(seconds, Integer))


@compiles(Ago)
def _postgresql(element: Ago, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 -- SQLAlchemy's
    seconds = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() - make_interval(secs => CAST({seconds} AS double precision)))"


@compiles(Ago, "mysql", "mariadb")
def _mysql(element: Ago, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 -- as above
    return f"(UTC_TIMESTAMP(3) - INTERVAL {compiler.process(element.clauses, **options)} SECOND)"


@compiles(Ago, "sqlite")
def _sqlite(element: Ago, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 -- as above
    seconds = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || {seconds} || ' seconds')"


NOW = Ago(0)


NAME: Final = "delayq_processed"
RUNNING, DONE = "running", "done"
MAX_ID_BYTES: Final = 200
MAX_QUEUE_BYTES: Final = 63

DIALECTS: Final = {
    "postgresql": postgresql.dialect(),  # type: ignore[no-untyped-call]  # SQLAlchemy's
    "mysql": mysql.dialect(),
    "sqlite": sqlite.dialect(),
}


def _text(length: int) -> String:
    """Text that is compared byte by byte: case matters, and no collation of a language applies."""
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    plain = String(length).with_variant(exact, "mysql", "mariadb")
    return plain.with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")


TABLE: Final = Table(
    NAME,
    MetaData(),
    Column("queue", _text(MAX_QUEUE_BYTES), primary_key=True),
    Column("task_id", _text(MAX_ID_BYTES), primary_key=True),
    Column("state", _text(7), nullable=False),
    Column("token", BigInteger, nullable=False, autoincrement=False),
    Column("version", BigInteger, nullable=False, autoincrement=False),
    Column("began_at", INSTANT, nullable=False),
    Column("done_at", INSTANT, nullable=True),
    Index("delayq_processed_began", "queue", "began_at"),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


def ddl(dialect: str) -> list[str]:
    """Return the statements that make the table, as plain SQL; `delayq guard ddl` prints them."""
    kind = DIALECTS[dialect]
    table = str(CreateTable(TABLE).compile(dialect=kind))
    indexes = [str(CreateIndex(index).compile(dialect=kind)) for index in TABLE.indexes]
    return [_tidied(text) for text in (table, *indexes)]


def _tidied(text: str) -> str:
    lines = text.strip().expandtabs(2).replace(")ENGINE", ") ENGINE").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def install(connection: Connection) -> bool:
    """Create the table unless it exists; return whether this call did. Concurrent calls are safe."""
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
    """Return the differences between the table and the expected one."""
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
