"""validate, explain, crd, completion: what needs no Redis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from delayq.contract.words import HEADER_SCHEME

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
TOKEN = {"name": "shop", "key": "token"}
OWN_HEADERS = (
    ": headers and secretHeaders must not name what delayq sets itself: Content-Length, Content-Type, "
)
OWN_HEADERS += "Idempotency-Key, Transfer-Encoding and Delayq-*"


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
    assert good == {"file": "good.yaml", "valid": True, "problems": [], "schedules": []}
    nowhere = {"where": "", "line": None, "path": ""}
    assert none["problems"] == [{**nowhere, "message": "No such file or directory"}]
    assert stdin["file"] == "-"
    assert stdin["valid"] is False


def test_validate_names_the_wrong_one_of_several_documents(here: Path) -> None:
    (here / "all.yaml").write_text(f"{RIGHT}---\n{WRONG.replace('orders', 'mails')}")
    result = run("validate", "all.yaml")
    assert result.exit_code == 3
    assert result.stdout.startswith("all.yaml: document 2: spec.delivery.maxAtempts: unknown field")
    [problem, *_] = json.loads(run("validate", "all.yaml", "-o", "json").stdout)[0]["problems"]
    assert (problem["where"], problem["path"]) == ("document 2", "spec.delivery.maxAtempts")
    assert problem["message"].startswith("unknown field")
    (here / "all.yaml").write_text(f"{RIGHT}---\n{RIGHT.replace('orders', 'mails')}")
    assert run("validate", "all.yaml").stdout == "all.yaml: valid\n"


@pytest.mark.parametrize(
    ("http", "problem"),
    [
        ({"headers": {"delayq-token": "1"}}, OWN_HEADERS + ": got delayq-token"),
        ({"secretHeaders": {"Content-Type": TOKEN}}, OWN_HEADERS + ": got Content-Type"),
        (
            {"headers": {"Delayq-Check": "0"}, "secretHeaders": {"idempotency-key": TOKEN}},
            OWN_HEADERS + ": got Delayq-Check, idempotency-key",
        ),
        (
            {"headers": {"X-kEY": "1"}, "secretHeaders": {"x-Key": TOKEN}},
            ": headers and secretHeaders must not name the same header: got x-Key",
        ),
        (
            {"secretHeaders": {"X-Key": TOKEN, "x-key": TOKEN}},
            ": headers and secretHeaders must not name the same header: got X-Key, x-key",
        ),
        (
            {"secretHeaders": {"X-Key": "a/b"}},
            '.secretHeaders["X-Key"]: expected a mapping of name, key, scheme, got text',
        ),
        (
            {"caSecretRef": {"name": "a"}, "caConfigMapRef": {"name": "a"}},
            ": caSecretRef and caConfigMapRef exclude each other",
        ),
        (
            {"secretHeaders": {"Authorization": TOKEN | {"scheme": "Bearer s3cret"}}},
            f'.secretHeaders["Authorization"].scheme: expected {HEADER_SCHEME.expected}, got text',
        ),
    ],
)
def test_validate_reads_headers_as_a_worker_does(here: Path, http: dict[str, object], problem: str) -> None:
    """Of a handler and of the check; a secret that stands in the document by mistake is not printed."""
    service = {"url": "https://shop/", **http}
    head, _, _ = RIGHT.partition("  handler:")
    for path, parts in (
        ("spec.handler.http", {"handler": {"http": service}}),
        (
            "spec.recovery.check.http",
            {"handler": {"exec": {"command": ["a"]}}, "recovery": {"check": {"http": service}}},
        ),
    ):
        more = "".join(f"  {name}: {json.dumps(part)}\n" for name, part in parts.items())
        (here / "queue.yaml").write_text(head + more)
        result = run("validate", "queue.yaml")
        assert (result.exit_code, result.stdout) == (3, f"queue.yaml: {path}{problem}\n")


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


NIGHTLY = """\
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec: {queueRef: {name: orders}, cron: "0 3 * * *"}
"""


def test_a_schedule_in_a_file_of_its_own_is_checked_as_one(here: Path) -> None:
    (here / "nightly.yaml").write_text(NIGHTLY)
    assert run("validate", "nightly.yaml").stdout.startswith("nightly.yaml: valid\n")
    assert run("validate", "-", stdin=NIGHTLY.encode()).stdout.startswith("-: valid\n")
    (here / "nightly.yaml").write_text(NIGHTLY.replace("queueRef", "queueRf"))
    assert run("validate", "nightly.yaml").stdout == (
        "nightly.yaml: spec.queueRf: unknown field, did you mean queueRef?\n"
        "nightly.yaml: spec.queueRef: required, but missing\n"
    )
    (here / "nightly.yaml").write_text(f"{NIGHTLY}---\n{NIGHTLY.replace('0 3 * * *', '0 99 * * *')}")
    assert run("validate", "nightly.yaml").stdout.startswith("nightly.yaml: document 2: spec.cron: ")


def listed(*documents: str) -> str:
    """The documents as `kubectl get -o yaml` prints them."""
    made = {
        "metadata": {"uid": "0a1b", "managedFields": [], "resourceVersion": "7"},
        "status": {"conditions": []},
    }
    items = [yaml.safe_load(each) for each in documents]
    for each in items:
        each |= {"status": made["status"], "metadata": made["metadata"] | each["metadata"]}
    return str(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))


def test_the_items_of_a_list_are_documents(here: Path) -> None:
    (here / "list.yaml").write_text(listed(f"{RIGHT}  schedules: {{}}\n", NIGHTLY))
    assert run("validate", "list.yaml").stdout.startswith("list.yaml: valid\nlist.yaml: schedule nightly: ")
    next_times = run("cron", "preview", "list.yaml", "-c", "1", "--from", "2026-01-01T00:00:00Z")
    assert "2026-01-01T03:00:00" in next_times.stdout
    (here / "list.yaml").write_text(listed(WRONG, NIGHTLY.replace("orders", "mails"), WRONG))
    assert [line.partition(":")[2][:29] for line in run("validate", "list.yaml").stdout.splitlines()] == [
        " item 1: spec.delivery.maxAte",
        " item 1: spec.worker.concurre",
        " item 3: spec.delivery.maxAte",
        " item 3: spec.worker.concurre",
    ]


def test_a_document_of_another_kind_is_named_and_a_misspelt_kind_read_as_the_nearest(here: Path) -> None:
    (here / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    said = "expected a document of kind DelayQueue or DelaySchedule, found ConfigMap"
    assert run("validate", "other.yaml").stdout == f"other.yaml: {said}\n"
    (here / "nightly.yaml").write_text(NIGHTLY.replace("DelaySchedule", "DelayShedule"))
    said = 'kind: expected DelaySchedule, got "DelayShedule"'
    assert run("validate", "nightly.yaml").stdout == f"nightly.yaml: {said}\n"
    said = "nightly.yaml: expected a document of kind DelayQueue, found DelaySchedule"
    assert run("status", "nightly.yaml").stderr.startswith(said)


def test_a_run_needs_the_queue_of_each_schedule(here: Path) -> None:
    """tests/process/test_local.py runs a queue with a schedule in another file."""
    (here / "queue.yaml").write_text(RIGHT)
    (here / "nightly.yaml").write_text(NIGHTLY)
    assert "nightly.yaml: expected a document of kind DelayQueue" in run("run", "nightly.yaml").stderr
    (here / "nightly.yaml").write_text(NIGHTLY.replace("orders", "mails"))
    said = "nightly.yaml: spec.queueRef.name: expected one of orders, got mails"
    assert said in run("run", "queue.yaml", "nightly.yaml").stderr


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
    assert run("explain", "DelaySchedule.spec.cron").stdout.startswith(
        "DelaySchedule.spec.cron: a cron expression"
    )
    assert "queueRef" in run("explain", "DelaySchedule.spec").stdout
    assert run("explain", "DelayQueue.spec").stdout == run("explain", "spec").stdout.replace(
        "spec:", "DelayQueue.spec:"
    )


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


def test_a_misspelt_kind_of_the_guard_is_named(here: Path) -> None:
    handler = '{python: {callable: "json:dumps"}, kinds: {push: {exec: {command: [cat]}}}}'
    head, _, _ = RIGHT.partition("  handler:")
    (here / "queue.yaml").write_text(
        f"{head}  handler: {handler}\n  guard: {{redisLock: {{}}, appliesTo: NamedKinds, kinds: [push, pussh]}}\n"
    )
    for command in ("validate", "doctor"):
        assert "takes tasks without a kind only: got pussh\n" in run(command, "queue.yaml").stdout


def test_an_expression_without_quotes_is_an_error_that_asks_for_them(here: Path) -> None:
    (here / "queue.yaml").write_text("kind: DelaySchedule\nspec:\n  cron: * 3 * * *\n")
    assert "; quote a value that begins with *, as in cron: " in run("validate", "queue.yaml").stdout


def test_an_error_of_schedule_names_the_options_that_were_typed() -> None:
    debounce = ("--if-exists", "debounce")
    for words, said in (
        (("--debounce", "1m"), "--debounce: expected --if-exists debounce beside it"),
        (("--id", "a", *debounce), "--if-exists debounce: expected --debounce beside it, got none"),
        ((*debounce, "--debounce", "1m"), "--if-exists debounce: expected --id beside it"),
        (
            ("--id", "a", *debounce, "--debounce", "10m", "--in", "1h"),
            "--debounce: expected at least 1h, the delay of --in, got 10m",
        ),
        (("--deadline", "0s"), "'--deadline': expected at least 1ms, got 0s"),
        (("--in", "9999999d"), "'--in': expected at most 3660d, got 9999999d"),
    ):
        result = run("schedule", "orders", "{}", "--redis", "redis://127.0.0.1:1", *words)
        assert (result.exit_code, said in result.stderr) == (2, True), result.output
