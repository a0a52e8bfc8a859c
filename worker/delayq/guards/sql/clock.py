"""The database's own clock in SQL: workers' clocks may differ, and the database decides what is old."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import DateTime, Integer, literal
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler

INSTANT = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=3), "mysql", "mariadb")
"""UTC everywhere: PostgreSQL keeps the zone, the others keep none."""


class Ago(FunctionElement[datetime]):
    """So many seconds before now; 0 is now."""

    type = INSTANT
    inherit_cache = True
    name = "ago"

    def __init__(self, seconds: int) -> None:
        """Keep the number as a parameter, so that the statement stays the same."""
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
