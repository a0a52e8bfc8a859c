"""`delayq guard`: which document and database it takes, and what it says of a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from delayq.guards import SqlUnique

from tests.guards.sql_bank import sql, task
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {callable: "shop:cancel"}}
  guard: GUARD
"""
BY_ROW = {
    "select": "SELECT id FROM orders WHERE id = :payload_order AND status = 'open'",
    "update": "UPDATE orders SET status = 'done' WHERE id = :id",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with queue.yaml, whose guard's Secret names the file shop.sqlite in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_DATABASE_URL", raising=False)
    (tmp_path / "shop-database").mkdir()
    (tmp_path / "shop-database" / "url").write_text(f"sqlite:///{tmp_path}/shop.sqlite")
    document(tmp_path)
    return tmp_path


def document(home: Path, kind: str = "sqlUnique", **more: str) -> None:
    guard = {kind: {"databaseSecretRef": {"name": "shop-database"}, **more}} if kind else None
    (home / "queue.yaml").write_text(DOCUMENT.replace("GUARD", json.dumps(guard)))


def guard(*args: str, **env: str) -> Result:
    return run("guard", *args, **{"DELAYQ_SECRETS_DIR": ".", **env})


def database(home: Path) -> SqlUnique:
    return SqlUnique(f"sqlite:///{home}/shop.sqlite", apart=True)


@pytest.mark.parametrize("named", ["queue.yaml", "orders"])
def test_every_command_takes_the_document_in_the_same_way(home: Path, named: str) -> None:
    assert (
        guard("init", named).stdout == f"created the table delayq_processed in sqlite:///{home}/shop.sqlite\n"
    )
    assert guard("prune", named).stdout == "deleted the rows of 0 tasks\n"
    assert guard("seen", named, "order-7").stdout == "order-7 has not taken effect\n"
    assert guard("forget", named, "order-7").exit_code == 6
    assert "state VARCHAR(7) NOT NULL" in guard("ddl", named).stdout  # as SQLite has it
    assert 'COLLATE "C"' in guard("ddl", named, "--dialect", "postgresql").stdout


def test_init_without_a_document_takes_a_url_and_says_what_is_wrong(home: Path) -> None:
    bare = guard("init")
    said = "error: expected a document or --database URL, got neither\nhint:  delayq guard init queue.yaml\n"
    assert (bare.exit_code, bare.stderr) == (2, said)
    assert guard("prune").exit_code == 2
    assert guard("init", "none.yaml", "--database", "sqlite:///shop.sqlite").exit_code == 3
    init = guard("init", "--database", "sqlite:///other.sqlite")
    assert init.stdout == f"created the table delayq_processed in sqlite:///{home}/other.sqlite\n"
    for named in ((), ("queue.yaml",)):
        reported = guard("init", *named, "--database", "nonsense")
        assert (reported.exit_code, reported.stderr[:33]) == (3, "--database: expected a database U")
        reported = guard("init", *named, DELAYQ_DATABASE_URL="nonsense")
        assert (reported.exit_code, reported.stderr[:33]) == (3, "$DELAYQ_DATABASE_URL: expected a ")
    gone = guard("init", "--database", "postgresql://u:hidden@127.0.0.1:1/x")
    assert gone.exit_code == 4
    assert gone.stderr.startswith("error: guard at postgresql://127.0.0.1:1/x is not available (")
    assert "hidden" not in gone.output


def test_a_guard_in_ones_own_code_is_asked_at_the_database_that_is_named(home: Path) -> None:
    document(home, "")
    guard("init", "queue.yaml", DELAYQ_DATABASE_URL="sqlite:///shop.sqlite")
    used = database(home)
    with used(task()):
        pass
    used.close_sync()
    named = ("queue.yaml", "order-7", "--database", "sqlite:///shop.sqlite")
    assert guard("seen", *named).stdout == "order-7 has taken effect\n"
    assert guard("forget", *named, "--force").stdout == "forgot order-7, which was done\n"
    refused = guard("seen", "queue.yaml", "order-7")
    assert (refused.exit_code, "spec.guard: expected sqlUnique" in refused.stderr) == (3, True)
    assert guard("prune", "queue.yaml", *named[2:]).exit_code == 3  # no retention is given


def test_a_run_without_a_recorded_end_is_reported_as_unknown(home: Path) -> None:
    guard("init", "queue.yaml")
    used = database(home)
    used.begin_sync(task(token=3))
    used.close_sync()
    asked = guard("seen", "queue.yaml", "order-7")
    assert asked.stdout.startswith("order-7: a run (token 3) started at 20")
    assert asked.stdout.endswith("Z and did not record its end, or is still running\n")
    asked = guard("seen", "queue.yaml", "order-7", "-o", "json")
    assert json.loads(asked.stdout) == {"id": "order-7", "seen": None}


def test_a_query_by_the_payload_wants_one(home: Path) -> None:
    document(home, "sqlOptimistic", **BY_ROW)
    asked = guard("seen", "queue.yaml", "x", "--payload", '{"order": 7}')
    assert (asked.exit_code, "no such table: orders" in asked.stderr) == (3, True)
    used = database(home)
    sql(used, "CREATE TABLE orders (id INTEGER, status TEXT)")
    sql(used, "INSERT INTO orders VALUES (7, 'open')")
    used.close_sync()
    bare = guard("seen", "queue.yaml", "order-7")
    assert bare.exit_code == 2
    assert bare.stderr.startswith("error: spec.guard.sqlOptimistic.select: parameter :payload_order expects")
    for order, known in ((7, "has not taken effect"), (8, "has taken effect")):
        payload = json.dumps({"order": order})
        assert guard("seen", "queue.yaml", "x", "--payload", payload).stdout == f"x {known}\n"


def test_a_row_that_says_done_is_forgotten_by_force_only(home: Path) -> None:
    assert [guard("init", "queue.yaml").stdout[:5] for _ in range(2)] == ["creat", "found"]
    used = database(home)
    with used(task()):
        pass
    used.close_sync()
    asked = guard("seen", "queue.yaml", "order-7", "-o", "json")
    assert json.loads(asked.stdout) == {"id": "order-7", "seen": True}
    refused = guard("forget", "queue.yaml", "order-7")
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (5, "error: order-7: already finished")
    forced = guard("forget", "queue.yaml", "order-7", "order-8", "--force")
    assert forced.stdout == "forgot order-7, which was done\n"
    assert (forced.exit_code, "no record of order-8" in forced.stderr) == (6, True)


def test_a_task_with_a_kind_is_named_by_both_and_an_id_alone_gets_a_hint(home: Path) -> None:
    """A wrong "has not taken effect" would lead to a second payment."""
    with_app = (home / "queue.yaml").read_text().replace('{callable: "shop:cancel"}', '{app: "shop:app"}')
    (home / "queue.yaml").write_text(with_app)
    guard("init", "queue.yaml")
    used = database(home)
    with used(task("pay:order-7")):
        pass
    used.begin_sync(task("pay:order-8"))
    used.close_sync()
    bare = guard("seen", "queue.yaml", "order-7")
    assert bare.stdout == "order-7 has not taken effect\n"
    assert bare.stderr == "note: a task with a kind has the ID KIND:order-7: give its --kind\n"
    for named in (("order-7", "--kind", "pay"), ("pay:order-7", "--kind", "pay"), ("pay:order-7",)):
        asked = guard("seen", "queue.yaml", *named)
        assert (asked.stdout, asked.stderr) == ("pay:order-7 has taken effect\n", "")
    bare = guard("forget", "queue.yaml", "order-8")
    assert bare.exit_code == 6
    assert bare.stderr.endswith("hint:  a task with a kind has the ID KIND:order-8: give its --kind\n")
    forgotten = guard("forget", "queue.yaml", "order-8", "--kind", "pay")
    assert forgotten.stdout == "forgot pay:order-8, which was running\n"
    assert guard("seen", "queue.yaml", "order-7", "--kind", "a b").exit_code == 5
    without_kinds = guard("seen", "queue.yaml", "@nightly@2026-03-01T03:00:00Z")
    assert without_kinds.stderr == ""
