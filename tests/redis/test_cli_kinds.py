"""`delayq schedule` with the document of an App beside its module: kinds and arguments are checked."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq import SyncClient

from tests.processes import delayq

if TYPE_CHECKING:
    from pathlib import Path

APP = """
from delayq import App

app = App("queue.yaml")
print("imported")


@app.task
def remind(order: int) -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shoptasks.py").write_text(APP)
    spec = {
        "redis": {"standalone": {"host": "redis"}},
        "handler": {"python": {"app": "shoptasks:app"}},
        "schedules": {},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "orders"}}
    (tmp_path / "queue.yaml").write_text(yaml.safe_dump(head | {"spec": spec}))
    return tmp_path


@pytest.mark.usefixtures("orders")
def test_kinds_and_arguments_are_checked_where_the_app_can_be_imported(folder: Path, redis_url: str) -> None:
    def schedule(*words: str) -> tuple[int, str]:
        process = delayq("schedule", "queue.yaml", *words, "--redis", redis_url, cwd=folder)
        return process.wait(), process.output

    good, wrong = json.dumps({"order": 7}), json.dumps({"ordr": 7})
    lines = [
        {"payload": {"order": 1}, "kind": "remind", "id": "one"},
        {"payload": {"order": "x"}, "kind": "remind"},
    ]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"payload": {}}])))
    assert schedule(good, "--kind", "remind")[0] == 0
    for words, said in (
        ([good], "kind: required"),
        ([good, "--kind", "remnd"], "did you mean remind?"),
        ([wrong, "--kind", "remind"], "ordr"),
        (["--many", "tasks.jsonl", "--if-exists", "keep"], "tasks.jsonl line 2: task remind: order"),
        (["--many", "tasks.jsonl", "--if-exists", "keep"], "tasks.jsonl line 3: kind: required"),
    ):
        code, output = schedule(*words)
        assert code == 5, output
        assert said in output
    assert schedule(good, "--kind", "remnd", "--unknown-kind")[0] == 0
    with SyncClient(redis_url, queue="orders") as client:
        assert client.counts().due == 3


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("app", "error"),
    [
        ("import no_such_package", 'importing "shoptasks" failed: ModuleNotFoundError: No module named'),
        ("import sys; sys.exit(0)", 'importing "shoptasks" failed: SystemExit: 0'),
        ("ap = 5", 'module "shoptasks" has no attribute "app", did you mean "ap"?'),
        (None, ""),
    ],
)
def test_an_app_that_is_there_and_cannot_be_loaded_is_reported_and_one_that_is_not_there_is_normal(
    folder: Path, redis_url: str, app: str | None, error: str
) -> None:
    (folder / "shoptasks.py").write_text(app) if app else (folder / "shoptasks.py").unlink()
    process = delayq("schedule", "queue.yaml", "{}", "--kind", "remnd", "--redis", redis_url, cwd=folder)
    assert process.wait() == 0, process.output
    said = [line for line in process.output.splitlines() if line.startswith("warning: ")]
    assert len(said) == bool(error)
    for line in said:
        assert line.startswith(f"warning: queue.yaml, line 8: spec.handler.python.app: {error}")
        assert line.endswith(": the kinds of the App and their arguments are not checked")


NIGHTLY = """
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec: {queueRef: {name: orders}, everySeconds: 3600, task: TASK}
"""


@pytest.mark.usefixtures("orders")
def test_a_schedule_whose_task_no_handler_takes_is_refused_where_the_app_can_be_imported(
    folder: Path, redis_url: str
) -> None:
    def said(*words: str) -> tuple[int, str]:
        process = delayq(*words, cwd=folder)
        return process.wait(), process.output

    beside = (folder / "queue.yaml").read_text()
    apply = ("cron", "apply", "queue.yaml", "nightly.yaml", "--redis", redis_url)
    for task, wrong in (
        ("{kind: remnd}", "spec.task.kind: no handler takes 'remnd' version 1; did you mean remind?"),
        (
            "{kind: remind, version: 3, payload: '{\"order\": 1}'}",
            "spec.task.kind: no handler takes 'remind' version 3",
        ),
        ("{payload: '{\"order\": 1}'}", "spec.task.kind: required, but missing"),
        ("{kind: remind, payload: '{\"ordr\": 1}'}", "spec.task.payload: task remind: "),
    ):
        (folder / "nightly.yaml").write_text(NIGHTLY.replace("TASK", task))
        (folder / "all.yaml").write_text(f"{beside}---{NIGHTLY.replace('TASK', task)}")
        for command in (apply, ("run", "all.yaml", "--redis", redis_url)):
            code, output = said(*command)
            assert (code, f"nightly: {wrong}" in output) == (3, True), output
        code, output = said("validate", "all.yaml")
        assert (code, f"nightly: {wrong}" in output) == (3, True), output
    (folder / "nightly.yaml").write_text(NIGHTLY.replace("TASK", "{kind: remnd}"))
    assert said(*apply, "--unknown-kind") == (0, "nightly: created")
    assert (
        "! schedules   nightly: spec.task.kind: no handler takes 'remnd'"
        in said("doctor", "queue.yaml", "--redis", redis_url)[1]
    )
    (folder / "nightly.yaml").write_text(NIGHTLY.replace("TASK", "{kind: remind, payload: '{\"order\": 1}'}"))
    assert said(*apply)[0] == 0
    assert "! schedules" not in said("doctor", "queue.yaml", "--redis", redis_url)[1]


@pytest.mark.usefixtures("orders")
def test_doctor_says_that_a_misspelt_kind_of_the_guard_is_corrected_in_the_document(
    folder: Path, redis_url: str
) -> None:
    written = yaml.safe_load((folder / "queue.yaml").read_text())
    written["spec"]["guard"] = {"redisLock": {}, "appliesTo": "NamedKinds", "kinds": ["remnd"]}
    (folder / "queue.yaml").write_text(yaml.safe_dump(written))
    process = delayq("doctor", "queue.yaml", "--redis", redis_url, cwd=folder)
    assert process.wait() == 1
    said = "spec.guard.kinds[0]: the handler has no kind remnd; did you mean remind?"
    wrong = re.compile(rf"✗ handler     queue\.yaml, line \d+: {re.escape(said)}\s*")
    [at] = [nth for nth, line in enumerate(process.lines) if wrong.fullmatch(line)]
    assert process.lines[at + 1].strip() == "→ workers cannot start: correct the document"
