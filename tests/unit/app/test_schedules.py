"""What `@app.schedule` defines: the same document as YAML, and what it refuses, by the names of its options."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import yaml
from delayq import App, Context
from delayq.contract.document import parse_schedule

EVERY_FIELD = """
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly-report}
spec:
  queueRef: {name: shop}
  cron: "0 2 * * *"
  timeZone: Europe/Lisbon
  jitterSeconds: 60
  startTime: "2026-12-01T00:00:00Z"
  endTime: "2027-12-01T00:00:00Z"
  suspend: true
  misfire: {policy: RunAll, maxLatenessSeconds: 3600, maxRuns: 3}
  concurrencyPolicy: Forbid
  task:
    kind: report
    version: 2
    payload: '{"region":"eu","day":"2026-12-01"}'
    headers: {team: billing}
    deadlineSeconds: 7200
    tags: [eu, nightly]
"""


def only(app: App, queue: str = "shop") -> Any:  # noqa: ANN401 -- one DelaySchedule
    [found] = app.schedule_documents(queue)
    return found


def test_each_option_is_the_field_of_the_document() -> None:
    app = App()

    @app.schedule(
        cron="0 2 * * *",
        time_zone="Europe/Lisbon",
        name="nightly-report",
        payload={"region": "eu", "day": date(2026, 12, 1)},
        jitter="1m",
        start_time=datetime(2026, 12, 1, tzinfo=UTC),
        end_time=datetime.fromisoformat("2027-12-01T02:00:00+02:00"),
        suspend=True,
        misfire="RunAll",
        max_lateness=timedelta(hours=1),
        max_runs=3,
        concurrency_policy="Forbid",
        headers={"team": "billing"},
        deadline="2h",
        tags=("eu", "nightly"),
    )
    @app.task(version=2, deadline="1h")
    async def report(context: Context, region: str, day: date) -> None: ...

    assert only(app) == parse_schedule(yaml.safe_load(EVERY_FIELD))
    assert report.name == "report", "the decorator returns the kind"


def test_without_options_it_has_the_name_and_the_deadline_of_its_kind() -> None:
    app = App()

    @app.schedule(every=timedelta(minutes=90))
    @app.task(deadline="1500ms")
    def Clean_up_(days: int = 7) -> None: ...  # noqa: N802 -- a name that no DelaySchedule can have

    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "clean-up"}}
    task = {"kind": "Clean_up_", "deadlineSeconds": 2}
    spec = {"queueRef": {"name": "shop"}, "everySeconds": 5400, "task": task}
    assert only(app) == parse_schedule({**head, "spec": spec})
    assert only(app, "other").spec.queue_ref.name == "other"


def test_a_kind_has_several_schedules_if_they_have_names() -> None:
    app = App()

    @app.schedule(cron="@daily")
    @app.schedule(every="1h", name="hourly", payload={"region": "us"})
    @app.task
    def report(region: str = "eu") -> None: ...

    named = {each.metadata.name: each.spec.task.payload for each in app.schedule_documents("shop")}
    assert named == {"report": None, "hourly": '{"region":"us"}'}
    with pytest.raises(ValueError, match=r"schedule report of task report: task report has .* set name="):
        app.schedule(every="1h")(report)


def test_a_definition_that_runs_again_replaces_its_schedules() -> None:
    """As in a notebook, and when a module is loaded again: what the code does not say any more is gone."""
    app = App()

    def report() -> None: ...

    report.__qualname__ = "report"
    app.schedule(every="1h")(app.schedule(every="2h", name="old")(app.task(report)))
    app.schedule(every="3h")(app.task(report))
    assert only(app).spec.every_seconds == 10_800


def test_an_item_of_a_batch_is_its_payload() -> None:
    app = App()

    @app.schedule(every="1h", payload=7)
    @app.task(batch=10)
    def mail(orders: list[int]) -> None: ...

    assert only(app).spec.task.payload == "7"


def fails(app: App, kind: Any, match: str, **options: Any) -> None:  # noqa: ANN401
    with pytest.raises((TypeError, ValueError), match=match):
        app.schedule(**options)(kind)
    assert app.schedule_documents("shop") == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "schedule report of task report: expected cron or every, got neither"),
        ({"cron": "@daily", "every": "1h"}, "expected cron or every, got both"),
        ({"every": 90}, 'every: expected a duration like "30m".*got 90; did you mean "90s"'),
        ({"every": "1500ms"}, "every: expected whole seconds, got '1500ms'"),
        ({"every": "0s"}, "schedule report of task report: every: expected"),
        ({"every": "1h", "time_zone": "Europe/Lisbon"}, "task report: time_zone needs cron$"),
        ({"cron": "0 2 * *"}, 'report: cron: expected a cron expression of five fields.*got "0 2'),
        ({"cron": "0 0 31 2 *"}, "cron: expected a cron expression that matches some time"),
        ({"cron": "@daily", "time_zone": "Europe/Lissabon"}, "time_zone: expected .* did you mean Europe/"),
        ({"every": "1h", "jitter": "2h"}, "task report: jitter must be less than every$"),
        ({"every": "1h", "misfire": "Skip"}, "task report: misfire Skip needs max_lateness$"),
        ({"cron": "*/10 * * * * *"}, "cron: .*every"),
        ({"every": "1h", "start_time": datetime(2026, 1, 1)}, "start_time: expected a datetime with its"),  # noqa: DTZ001
        ({"every": "1h", "misfire": "skip"}, "misfire: expected"),
        ({"every": "1h", "concurrency_policy": "Replace"}, "concurrency_policy: expected"),
        ({"every": "1h", "tags": ["a b"]}, r"tags\[0\]: expected tags"),
        ({"every": "1h", "name": "My_Report"}, "name: expected at most 63 lower-case"),
        ({"every": "1h", "timezone": "UTC"}, "unknown option timezone, did you mean time_zone"),
        ({"every": "1h", "payload": {"zone": 1}}, "payload: expected what the function takes.*'zone'"),
        ({"every": "1h", "payload": {"region": 1}}, "payload: expected what the function takes: region"),
        ({"every": "1h", "payload": "eu"}, "payload: expected a dict of arguments by name, got 'eu'"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_where_it_is_defined(
    options: dict[str, Any], match: str
) -> None:
    app = App()

    @app.task
    def report(region: str = "eu") -> None: ...

    fails(app, report, match, **options)


def test_required_arguments_have_to_be_given() -> None:
    app = App()

    @app.task
    def remind(order: int) -> None: ...

    @app.task(batch=10)
    def mail(orders: list[int]) -> None: ...

    fails(app, remind, r"schedule remind of task remind: payload: .* argument: 'order'", every="1h")
    fails(app, mail, "schedule mail of task mail: payload: .* argument: 'item'", every="1h")


def test_it_belongs_above_a_task_of_the_same_app() -> None:
    app, other = App(), App()
    fails(app, print, "@app.schedule belongs above @app.task", every="1h")
    fails(app, other.task(test_it_belongs_above_a_task_of_the_same_app), "belongs to another App", every="1h")


def test_a_producer_without_the_libraries_of_schedules_imports_the_app(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It installs delayq without extras. apply_schedules() checks what this cannot: whether a zone exists."""
    for name in ("times", "cron", "cron_fields", "zones"):
        monkeypatch.delitem(sys.modules, f"delayq.schedules.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    app = App()

    @app.schedule(cron="@daily", time_zone="Europe/Lissabon")
    @app.task
    def report() -> None: ...

    assert only(app).spec.time_zone == "Europe/Lissabon"
