"""delayq validate and cron preview: the schedules of documents and of Apps, and when they are due next."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUE = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: shop}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {app: "shop_tasks:app"}}
  schedules: {}
---
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec: {queueRef: {name: shop}, cron: "0 3 * * *", timeZone: Asia/Tokyo, task: {kind: report, payload: "{}"}}
"""
APP = """\
from delayq import App

app = App("queue.yaml")


@app.schedule(cron="30 4 * * *")
@app.schedule(every="90s", name="often", suspend=True)
@app.task()
async def report() -> None: ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "queue.yaml").write_text(QUEUE)
    yield tmp_path
    sys.modules.pop("shop_tasks", None)


def test_the_schedules_of_documents_and_of_the_app_have_their_next_times(here: Path) -> None:
    (here / "shop_tasks.py").write_text(APP)
    result = run("validate", "queue.yaml", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    [file] = json.loads(result.stdout)
    found = {each["schedule"]: each for each in file["schedules"]}
    assert {name: each["when"] for name, each in found.items()} == {
        "nightly": "0 3 * * * Asia/Tokyo",
        "report": "30 4 * * * UTC",
        "often": "every 90 s, suspended",
    }
    assert found["often"]["next"] is None
    for name, hour in (("nightly", 18), ("report", 4)):  # 03:00 in Tokyo is 18:00 in UTC
        due = datetime.fromtimestamp(found[name]["next_ms"] / 1000, UTC)
        assert (due.hour, due > datetime.now(UTC)) == (hour, True)
    text = run("validate", "queue.yaml").stdout
    assert text.startswith("queue.yaml: valid\nqueue.yaml: schedule nightly: 0 3 * * * Asia/Tokyo, next 20")
    assert "queue.yaml: schedule often: every 90 s, suspended\n" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('cron="30 4 * * *"', 'cron="0 0 31 2 *"'), "line 6: spec.handler.python.app: importing "),
        (("@app.task()", "@app.tsk()"), "(shop_tasks.py line 8)"),
        (
            ("def report()", "def reprot()"),
            "nightly: spec.task.kind: no handler takes 'report' version 1; did you mean",
        ),
        (('payload: "{}"', """payload: '{"x": 1}'"""), "nightly: spec.task.payload: task report: "),
    ],
)
def test_what_is_wrong_with_the_app_or_with_a_task_for_it_is_a_problem(
    here: Path, change: tuple[str, str], says: str
) -> None:
    (here / "queue.yaml").write_text(QUEUE.replace(*change))
    (here / "shop_tasks.py").write_text(APP.replace(*change))
    result = run("validate", "queue.yaml")
    assert (result.exit_code, says in result.stdout) == (3, True), result.output


@pytest.mark.parametrize("app", ["", "import a_library_that_is_not_installed\n"])
def test_a_machine_without_the_code_or_its_libraries_checks_the_documents_alone(here: Path, app: str) -> None:
    if app:
        (here / "shop_tasks.py").write_text(app)
    result = run("validate", "queue.yaml")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 2)
    assert "note: queue.yaml, line 6: spec.handler.python.app: " in result.stderr
    assert "the App's schedules, kinds and arguments are not checked" in result.stderr


def test_apps_of_several_directories_are_not_imported(here: Path) -> None:
    (here / "shop_tasks.py").write_text(APP)
    (here / "other").mkdir()
    (here / "other/queue.yaml").write_text(QUEUE)
    result = run("validate", "queue.yaml", "other/queue.yaml")
    assert (result.exit_code, "schedule report" in result.stdout) == (0, False)
    assert "note: other/queue.yaml: an App is not imported" in result.stderr


def test_preview_prints_the_schedules_of_documents_and_of_the_app(here: Path) -> None:
    (here / "shop_tasks.py").write_text(APP)
    result = run("cron", "preview", "queue.yaml", "-c", "1", "--from", "2026-03-01T00:00:00Z", "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = {each["schedule"]: each["local"] for each in json.loads(result.stdout)}
    assert found == {
        "nightly": "2026-03-02T03:00:00+09:00",
        "report": "2026-03-01T04:30:00+00:00",
        "often": "2026-03-01T00:00:00+00:00",
    }


def test_preview_of_a_queue_without_schedules_names_the_command_that_asks_the_queue(here: Path) -> None:
    (here / "queue.yaml").write_text(QUEUE.partition("---")[0])
    (here / "shop_tasks.py").write_text(APP.replace("@app.schedule", "# "))
    result = run("cron", "preview", "queue.yaml")
    assert (result.exit_code, result.stdout) == (3, "")
    assert (
        "expected a DelaySchedule, or @app.schedule in the App of a DelayQueue, found neither"
        in result.stderr
    )
    assert "delayq cron next queue.yaml" in result.stderr


def test_a_schedule_of_the_app_cannot_have_the_name_of_one_in_the_file(here: Path) -> None:
    (here / "shop_tasks.py").write_text(APP.replace("often", "nightly"))
    result = run("validate", "queue.yaml")
    said = "queue.yaml: shop_tasks:app: nightly: the file has a DelaySchedule of this name, too"
    assert (result.exit_code, said in result.stdout) == (3, True), result.output
