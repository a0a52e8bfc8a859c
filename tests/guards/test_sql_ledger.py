"""The ledger's table: how it is made, what is kept in it for how long, and `delayq guard`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.guards.sql.settings import SqlLimits
from delayq.guards.sql.table import ddl
from sqlalchemy import inspect

from tests.guards.sql_bank import PATIENT, sql, task, transfer

if TYPE_CHECKING:
    from tests.guards.conftest import Database, Opened

KEPT = SqlLimits(retention_seconds=60, run_seconds=60)


def described(guard: SqlUnique) -> Any:  # noqa: ANN401 -- what SQLAlchemy says of a table
    def look(connection: Any) -> Any:  # noqa: ANN401 -- as above
        seen = inspect(connection)
        columns = [
            (each["name"], str(each["type"]), each["nullable"])
            for each in seen.get_columns("delayq_processed")
        ]
        indexes = [(each["name"], each["column_names"]) for each in seen.get_indexes("delayq_processed")]
        return columns, seen.get_pk_constraint("delayq_processed")["constrained_columns"], indexes

    return guard._pools.once(look)


async def test_the_printed_statements_make_the_same_table_as_the_command(
    database: Database, opened: Opened
) -> None:
    guard = opened(SqlUnique(database.async_url))
    for statement in ddl({"mariadb": "mysql"}.get(database.kind, database.kind)):
        sql(guard, statement.replace(":", r"\:"))
    by_hand = described(guard)
    assert await guard.install() is False
    assert await guard.problems() == []
    await guard.check()
    sql(guard, "DROP TABLE delayq_processed")
    workers = [opened(SqlUnique(database.async_url, limits=PATIENT)) for _ in range(5)]
    assert sum(await asyncio.gather(*(each.install() for each in workers))) >= 1  # by all of them at once
    assert described(guard) == by_hand


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
async def test_a_table_that_is_another_applications_is_reported(database: Database, opened: Opened) -> None:
    guard = opened(SqlUnique(database.async_url))
    engine = " ENGINE=MyISAM" if database.kind == "mariadb" else ""
    sql(guard, f"CREATE TABLE delayq_processed (queue VARCHAR(63) PRIMARY KEY, task_id VARCHAR(200)){engine}")
    found = await guard.problems()
    assert "column state is missing" in found
    assert "the primary key is (queue), expected (queue, task_id)" in found
    assert any("InnoDB" in problem for problem in found) == (database.kind == "mariadb")


async def test_rows_are_kept_as_long_as_the_document_says_and_deleted_in_batches_without_waiting(
    database: Database, opened: Opened
) -> None:
    guard, apart = (
        opened(SqlUnique(database.async_url, queue="orders", limits=KEPT)),
        opened(SqlUnique(database.async_url, apart=True)),
    )
    await guard.install()
    sql(guard, "CREATE TABLE effects (task_id VARCHAR(255), run INTEGER)")
    for number in range(7):
        await transfer(guard, task(f"order-{number}"))
    await transfer(guard, task("refund", queue="refunds"))
    await apart.begin(task("running"))
    if database.kind != "sqlite":  # which lets one transaction in at a time
        hold = await guard.begin(task("locked"))
        assert await guard.prune() == 0
        await guard.abandon(hold)
    assert await guard.prune() == 0
    age(guard, database, 100)
    await transfer(guard, task("young"))
    assert [await guard.prune(batch=3) for _ in range(4)] == [3, 3, 1, 0]
    left = sql(guard, "SELECT task_id FROM delayq_processed ORDER BY task_id")
    assert left == [("refund",), ("running",), ("young",)]
    age(guard, database, 8000)  # by now, no run can still go on
    assert await guard.prune() == 2


def age(guard: SqlUnique, database: Database, seconds: int) -> None:
    """Make all rows so much older."""
    interval = {
        "postgresql": "{} - INTERVAL '{} seconds'",
        "mariadb": "{} - INTERVAL {} SECOND",
        "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', {}, '-{} seconds')",
    }[database.kind]
    for name in ("began_at", "done_at"):
        sql(guard, " ".join(("UPDATE delayq_processed SET", name, "=", interval.format(name, seconds))))
