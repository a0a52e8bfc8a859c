"""The ledger's table: how it is made, what is kept in it for how long, and `delayq guard`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from delayq.guards import SqlUnique
from delayq.guards.sql.settings import Limits
from delayq.guards.sql.table import ddl
from sqlalchemy import inspect

from tests.guards.sql_bank import PATIENT, sql, task, transfer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.guards.conftest import Database

KEPT = Limits(retention_seconds=60, run_seconds=60)
DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {callable: "shop:cancel"}}
  guard: {sqlUnique: {databaseSecretRef: {name: shop-database}, retentionSeconds: 60}}
"""


def described(guard: SqlUnique) -> Any:  # noqa: ANN401 -- what SQLAlchemy says of a table
    def look(connection: Any) -> Any:  # noqa: ANN401 -- as above
        seen = inspect(connection)
        columns = [
            (each["name"], str(each["type"]), each["nullable"])
            for each in seen.get_columns("delayq_processed")
        ]
        indexes = [(each["name"], each["column_names"]) for each in seen.get_indexes("delayq_processed")]
        return columns, seen.get_pk_constraint("delayq_processed")["constrained_columns"], indexes

    return guard._plain.once(look)


async def test_the_printed_statements_make_the_same_table_as_the_command(database: Database) -> None:
    guard = SqlUnique(database.async_url)
    for statement in ddl({"mariadb": "mysql"}.get(database.kind, database.kind)):
        sql(guard, statement.replace(":", r"\:"))
    by_hand = described(guard)
    assert await guard.install() is False
    assert await guard.problems() == []
    await guard.check()
    sql(guard, "DROP TABLE delayq_processed")
    assert await guard.install() is True
    assert described(guard) == by_hand
    await guard.close()


async def test_many_that_make_the_table_at_once_make_it_once(database: Database) -> None:
    guards = [SqlUnique(database.async_url, limits=PATIENT) for _ in range(5)]
    assert sum(await asyncio.gather(*(guard.install() for guard in guards))) >= 1
    assert await guards[0].problems() == []
    await asyncio.gather(*(guard.close() for guard in guards))


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
async def test_a_table_of_somebody_elses_is_told(database: Database) -> None:
    guard = SqlUnique(database.async_url)
    engine = " ENGINE=MyISAM" if database.kind == "mariadb" else ""
    sql(guard, f"CREATE TABLE delayq_processed (queue VARCHAR(63) PRIMARY KEY, task_id VARCHAR(200)){engine}")
    found = await guard.problems()
    assert "column state is missing" in found
    assert "the primary key is (queue), expected (queue, task_id)" in found
    assert any("InnoDB" in problem for problem in found) == (database.kind == "mariadb")
    await guard.close()


async def test_rows_are_kept_as_long_as_the_document_says_and_deleted_in_batches(database: Database) -> None:
    guard, apart = (
        SqlUnique(database.async_url, queue="orders", limits=KEPT),
        SqlUnique(database.async_url, apart=True),
    )
    await guard.install()
    sql(guard, "CREATE TABLE effects (task_id VARCHAR(255), run INTEGER)")
    for number in range(7):
        await transfer(guard, task(f"order-{number}"))
    await transfer(guard, task("refund", queue="refunds"))
    await apart.begin(task("running"))
    assert await guard.prune() == 0
    age(guard, database, 100)
    await transfer(guard, task("young"))
    assert [await guard.prune(batch=3) for _ in range(4)] == [3, 3, 1, 0]
    left = sql(guard, "SELECT task_id FROM delayq_processed ORDER BY task_id")
    assert left == [("refund",), ("running",), ("young",)]
    age(guard, database, 8000)  # by now, no run can still go on
    assert await guard.prune() == 2
    await asyncio.gather(guard.close(), apart.close())


def age(guard: SqlUnique, database: Database, seconds: int) -> None:
    """Make all rows so much older."""
    interval = {
        "postgresql": "{} - INTERVAL '{} seconds'",
        "mariadb": "{} - INTERVAL {} SECOND",
        "sqlite": "strftime('%Y-%m-%d %H\\:%M\\:%f', {}, '-{} seconds')",
    }[database.kind]
    for name in ("began_at", "done_at"):
        sql(guard, " ".join(("UPDATE delayq_processed SET", name, "=", interval.format(name, seconds))))


async def test_rows_that_a_run_holds_are_not_waited_for(database: Database) -> None:
    if database.kind == "sqlite":
        return  # one transaction at a time
    guard = SqlUnique(database.async_url, queue="orders", limits=KEPT)
    await guard.install()
    hold = await guard.begin(task())
    assert await guard.prune() == 0
    await guard.abandon(hold)
    await guard.close()


def command(*args: str, directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "delayq", "guard", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "DELAYQ_SECRETS_DIR": str(directory), **env},
    )


def test_the_command_makes_asks_and_tidies(database: Database, tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(DOCUMENT)
    (tmp_path / "shop-database").mkdir()
    (tmp_path / "shop-database" / "url").write_text(database.sync_url)
    where = SqlUnique(database.sync_url).where
    for said in ("made", "found"):
        init = command("init", "--config", "queue.yaml", directory=tmp_path)
        assert (init.stdout, init.stderr) == (f"{said} the table delayq_processed in {where}\n", "")
    asked = command("seen", "queue.yaml", "order-7", directory=tmp_path)
    assert asked.stdout == "order-7 has not taken effect\n"
    guard = SqlUnique(database.sync_url)
    with guard(task()):
        pass
    asked = command("seen", "queue.yaml", "order-7", "-o", "json", directory=tmp_path)
    assert json.loads(asked.stdout) == {"id": "order-7", "seen": True}
    forgotten = command("forget", "queue.yaml", "order-7", directory=tmp_path)
    assert (forgotten.returncode, forgotten.stderr.splitlines()[0]) == (5, "error: order-7: done already")
    pruned = command("prune", "--config", "queue.yaml", directory=tmp_path)
    assert pruned.stdout == "deleted the rows of 0 tasks\n"
    forgotten = command("forget", "queue.yaml", "order-7", "order-8", "--force", directory=tmp_path)
    assert forgotten.stdout == "forgot order-7, which was done\n"
    assert (forgotten.returncode, "no record of order-8" in forgotten.stderr) == (6, True)
    guard.close_sync()


def test_the_command_takes_a_url_and_needs_no_document_then(database: Database, tmp_path: Path) -> None:
    init = command("init", directory=tmp_path, DELAYQ_DATABASE_URL=database.sync_url)
    assert (init.returncode, init.stdout[:4]) == (0, "made")
    init = command("init", "--database", database.async_url, directory=tmp_path)
    assert (init.returncode, init.stdout[:5]) == (0, "found")


def test_what_is_wrong_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text(DOCUMENT)
    missing = command("seen", "queue.yaml", "order-7", directory=tmp_path)
    assert missing.returncode == 3
    assert missing.stderr.startswith("spec.guard.sqlUnique.databaseSecretRef: cannot read")
    gone = command("init", "--database", "postgresql://u:hidden@127.0.0.1:1/x", directory=tmp_path)
    assert gone.returncode == 4
    assert gone.stderr.startswith("error: guard at postgresql://127.0.0.1:1/x is not available (")
    assert "hidden" not in gone.stderr
    (tmp_path / "queue.yaml").write_text(DOCUMENT.split("guard:", maxsplit=1)[0])
    other = command("prune", "--config", "queue.yaml", directory=tmp_path)
    assert (other.returncode, "expected sqlUnique" in other.stderr) == (3, True)
    printed = command("ddl", "--dialect", "sqlite", directory=tmp_path)
    assert printed.stdout.startswith("CREATE TABLE delayq_processed (")
