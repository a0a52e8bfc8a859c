"""delayq cron preview: the times of a document, and where clocks move one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = """
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec:
  queueRef: {name: orders}
  cron: "30 1 * * *"
  timeZone: Europe/Lisbon
  daylightSaving: {overlap: Both}
  startTime: 2026-03-28T00:00:00Z
---
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: poll}
spec: {queueRef: {name: orders}, everySeconds: 90}
"""


def test_the_next_times_of_each_schedule_are_printed_and_where_clocks_move_one(tmp_path: Path) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(DOCUMENT)
    found = run("cron", "preview", str(file), "--count", "2", "--from", "2026-03-01T00:00:00Z")
    assert found.stdout.splitlines() == [
        "SCHEDULE  TIME                      LOCAL                         NOTE",
        "nightly   2026-03-28T01:30:00.000Z  Sat 2026-03-28 01:30:00 WET",
        "nightly   2026-03-29T01:00:00.000Z  Sun 2026-03-29 02:00:00 WEST  clocks go forward: there is no 01:30",
        "poll      2026-03-01T00:00:00.000Z  Sun 2026-03-01 00:00:00 UTC",
        "poll      2026-03-01T00:01:30.000Z  Sun 2026-03-01 00:01:30 UTC",
    ]
    found = run("cron", "preview", str(file), "--count", "2", "--from", "2026-10-25T00:00:00Z", "-o", "json")
    first, second, *_ = json.loads(found.stdout)
    assert (first["local"], first["note"]) == ("2026-10-25T01:30:00+01:00", "")
    assert (second["local"], second["note"]) == (
        "2026-10-25T01:30:00+00:00",
        "clocks go back: the second 01:30",
    )


def test_a_file_without_schedules_and_a_schedule_that_cannot_be_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(DOCUMENT.replace("Europe/Lisbon", "Mars/Olympus"))
    found = run("cron", "preview", str(file))
    assert (found.exit_code, found.stdout) == (3, "")
    assert "nightly: spec.timeZone: expected a time zone" in found.stderr
    file.write_text("kind: ConfigMap")
    said = "expected a document of kind DelayQueue or DelaySchedule, found ConfigMap"
    assert said in run("cron", "preview", str(file)).stderr


QUEUE = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: redis}}
  handler: {python: {callable: "shop:handle"}, kinds: {mail: {exec: {command: [mail]}}}}
  schedules: {}
---
"""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("name: orders}\n  cron", "name: others}\n  cron"),
            "spec.queueRef.name: expected one of orders, got others",
        ),
        (
            ("name: poll", "name: nightly"),
            "DelaySchedule nightly is in {file}, document 2 too; names must differ",
        ),
        (("30 1 * * *", "0 0 31 2 *"), "spec.cron: expected a cron expression that matches some time"),
        (
            ("everySeconds: 90", "everySeconds: 90, task: {kind: mial}"),
            "poll: spec.task.kind: no handler takes 'mial' version 1; did you mean mail?\n",
        ),
        (
            ("schedules: {}\n", "\n"),
            'spec.queueRef.name: DelayQueue orders accepts no DelaySchedules: add "schedules: {}" to its spec',
        ),
        (("everySeconds: 90", "everySeconds: 0"), "spec.everySeconds: expected a whole number from 1"),
    ],
    ids=["queue", "name", "times", "kind", "not allowed", "field"],
)
def test_validate_checks_the_schedules_beside_a_queue(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(QUEUE + DOCUMENT)
    assert run("validate", str(file)).exit_code == 0
    file.write_text((QUEUE + DOCUMENT).replace(*change))
    found = run("validate", str(file))
    assert (found.exit_code, problem.replace("{file}", str(file)) in found.stdout) == (3, True), found.output


def test_a_queue_that_accepts_no_schedules_does_not_run_with_them(tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text((QUEUE + DOCUMENT).replace("  schedules: {}\n", ""))
    found = run("run", str(file))
    assert found.exit_code == 3
    assert "DelayQueue orders accepts no DelaySchedules" in found.stderr


EVEN = "for an even interval, set everySeconds"


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("*/90 * * * *", f"minute matches only the first value, as it begins again each hour; {EVEN}: 5400"),
        ("0 */7 * * *", f"hour ends with a shorter step, as it begins again each day; {EVEN}: 25200"),
        ("0 0 1 */5 *", "month ends with a shorter step, as it begins again each year"),
        ("*/15 */6 * */3 */1", ""),
    ],
)
def test_a_step_that_does_not_divide_its_field_has_a_note(tmp_path: Path, cron: str, says: str) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text(QUEUE + DOCUMENT.replace("30 1 * * *", cron))
    term = next((field for field in cron.split() if field.startswith("*/")), "")
    noted = f"note: {file}: nightly: spec.cron: {term} in the field {says}\n" if says else ""
    for command in (("validate", str(file)), ("cron", "preview", str(file))):
        found = run(*command)
        assert (found.exit_code, found.stderr) == (0, noted), command
