"""validate, explain, crd, completion: what needs no Redis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.processes import DELAYQ
from tests.unit.cli.runner import run

ROOT = Path(__file__).parents[3]
WRONG = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis.shop.svc}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
  delivery: {maxAtempts: 5}
  worker: {concurrency: many}
"""
RIGHT = WRONG.replace("maxAtempts", "maxAttempts").replace("many", "32")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_validate_says_everything_that_is_wrong_as_ux_has_it(here: Path) -> None:
    (here / "queue.yaml").write_text(WRONG)
    result = run("validate", "queue.yaml")
    assert (result.exit_code, result.stderr) == (3, "")
    assert result.stdout == (
        "queue.yaml: spec.delivery.maxAtempts: unknown field, did you mean maxAttempts?\n"
        'queue.yaml: spec.worker.concurrency: expected a whole number from 1 to 10000, got "many"\n'
    )


def test_validate_checks_every_file_and_stdin(here: Path) -> None:
    (here / "good.yaml").write_text(RIGHT)
    result = run("validate", "good.yaml", "none.yaml", "-", "-o", "json", stdin=b"\x00")
    assert result.exit_code == 3
    good, none, stdin = json.loads(result.stdout)
    assert good == {"file": "good.yaml", "valid": True, "problems": []}
    assert none["problems"] == [{"path": "", "message": "No such file or directory"}]
    assert stdin["file"] == "-"
    assert stdin["valid"] is False


def test_validate_names_the_wrong_one_of_several_documents(here: Path) -> None:
    (here / "all.yaml").write_text(f"{RIGHT}---\n{WRONG.replace('orders', 'mails')}")
    result = run("validate", "all.yaml")
    assert result.exit_code == 3
    assert result.stdout.startswith("all.yaml: document 2: spec.delivery.maxAtempts: unknown field")
    (here / "all.yaml").write_text(f"{RIGHT}---\n{RIGHT.replace('orders', 'mails')}")
    assert run("validate", "all.yaml").stdout == "all.yaml: valid\n"


def test_validate_reads_statements_as_a_worker_does(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLAlchemy is installed, and no database is needed. tests/unit/guards has what it refuses."""
    guard = {
        "databaseSecretRef": {"name": "db"},
        "select": "SELECT id, version FROM orders WHERE id = :payload_order",
        # The columns of `select` are known to the database alone, so they may be parameters of `update`.
        "update": "UPDATE orders SET version = version + 1 WHERE version = :version",
    }
    (here / "queue.yaml").write_text(f"{RIGHT}  guard: {json.dumps({'sqlOptimistic': guard})}\n")
    assert run("validate", "queue.yaml").stdout == "queue.yaml: valid\n"

    guard["update"] = "TRUNCATE orders"
    (here / "queue.yaml").write_text(f"{RIGHT}  guard: {json.dumps({'sqlOptimistic': guard})}\n")
    result = run("validate", "queue.yaml")
    assert (result.exit_code, result.stderr) == (3, "")
    said = "queue.yaml: spec.guard.sqlOptimistic.update: expected a statement that begins"
    assert result.stdout.startswith(said)
    [found] = json.loads(run("validate", "queue.yaml", "-o", "json").stdout)
    assert found["problems"][0]["path"] == "spec.guard.sqlOptimistic.update"

    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert run("validate", "queue.yaml").stdout == "queue.yaml: valid\n"


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"[" * 5000, b"x" * (1 << 21)])
def test_validate_never_shows_a_trace(text: bytes) -> None:
    result = run("validate", "-", stdin=text)
    assert result.exit_code == 3
    assert result.stdout.startswith("-: ")


def test_explain_describes_a_field_and_what_is_inside_it() -> None:
    result = run("explain", "spec.delivery")
    assert result.exit_code == 0
    assert result.stdout.startswith("spec.delivery: a mapping; default: its defaults\n")
    assert "maxAttempts" in result.stdout
    assert run("explain", "spec.redis.sentinel.nodes").exit_code == 0
    assert "signingSecretRef" in run("explain", "spec.handler.kinds.http").stdout
    leaf = json.loads(run("explain", "spec.delivery.leaseDurationSeconds", "-o", "json").stdout)
    assert (leaf["field"], leaf["default"], leaf["fields"]) == ("leaseDurationSeconds", 30, [])


def test_explain_names_what_there_is_instead() -> None:
    for path in ("spec.nonsense", "spec.delivery.leaseDurationSeconds.x", "spec.delivery.lease_seconds"):
        result = run("explain", path)
        assert result.exit_code == 6
        assert result.stderr.startswith("error: spec")


def test_crd_prints_the_crds() -> None:
    result = run("crd")
    files = ("delayqueue.yaml", "delayschedule.yaml")
    assert result.stdout == "---\n".join((ROOT / "crds" / name).read_text() for name in files)
    kinds = [crd["spec"]["names"]["kind"] for crd in yaml.safe_load_all(result.stdout)]
    assert kinds == ["DelayQueue", "DelaySchedule"]


def test_completion_completes() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_DELAYQ_COMPLETE" in run("completion", shell).stdout
    words = {"COMP_WORDS": "delayq dlq re", "COMP_CWORD": "2", "_DELAYQ_COMPLETE": "bash_complete"}
    done = subprocess.run([DELAYQ], env=words, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,redrive\n"
