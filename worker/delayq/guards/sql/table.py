"""The ledger: the table `delayq_processed`, one row per task that began or is done. Not here: who writes it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from delayq.guards.sql.clock import INSTANT

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
    """Text that is compared byte by byte: ids differ by case, and no two are equal by a language's rules."""
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
