"""The pages of the operator list what it says, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import delayq_operator
import yaml
from delayq_operator.base import metrics
from delayq_operator.desired.monitoring import prometheus_rule
from delayq_operator.reconcile import report, scaler
from delayq_operator.reconcile.reconcile import RETRY_SECONDS
from delayq_operator.runtime import process
from delayq_operator.runtime.cli import delayq_operator as command
from delayq_operator.status import events
from delayq_operator.status.reasons import REASONS
from prometheus_client.metrics import MetricWrapperBase

from tests.unit.operator.queues import RICH, facts, queue

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGE = "\n".join(
    (FOLDER / f"{name}.md").read_text()
    for name in ("operator", "conditions", "events", "operator-process", "operator-metrics")
)
SOURCES = sorted(Path(delayq_operator.__file__).parent.rglob("*.py"))
CODE = "\n".join(path.read_text() for path in SOURCES)


def section(title: str) -> str:
    return re.split(r"\n#{2,3} ", PAGE.split(f"# {title}\n")[1])[0]


def rows(title: str) -> list[list[str]]:
    """Cells of each row of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


def table(text: str) -> list[list[str]]:
    """Cells of each row of the tables of a text, without their heads."""
    lines = [line for line in text.splitlines() if re.match(r"\| *`", line)]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def conditions() -> list[tuple[str, list[str], str, str]]:
    """Each row of the page of conditions: the condition, the reasons, their status, and what to do.

    A row of a reason that several conditions have names each condition in its second cell.
    """
    _, shared, *sections = (
        (FOLDER / "conditions.md").read_text().split("\n## DelaySchedule")[0].split("\n## ")
    )
    found = []
    for row in table(shared):
        for kinds, status in re.findall(r"((?:`\w+`(?:, )?)+): (\w+)", row[1]):
            found += [(kind, words(row[0]), status, row[3] if len(row) > 2 else "") for kind in words(kinds)]
    for part in sections:
        found += [(part.split("\n")[0], words(row[0]), row[1], row[3]) for row in table(part)]
    return found


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_condition_is_there_with_every_reason_and_its_status_in_the_order_people_read_them() -> None:
    reported = [(kind, reason, status) for kind, reasons, status, _ in conditions() for reason in reasons]
    known = [(kind, reason, each) for kind, reasons in REASONS.items() for reason, each in reasons.items()]
    assert sorted(reported) == sorted(known)
    page = (FOLDER / "conditions.md").read_text().split("\n## DelaySchedule")[0]
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert headings == list(REASONS)


def test_the_page_about_not_ready_has_each_of_its_reasons_in_the_order_in_which_they_are_named() -> None:
    page = (ROOT / "docs" / "how-to" / "not-ready.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.split("\n## ")[1], re.MULTILINE)
    assert listed == [reason for reason, status in REASONS["Ready"].items() if status == "False"]


def test_what_is_wrong_comes_with_something_to_do() -> None:
    """Only what is as it should be needs no advice."""
    fine = {
        "True": "Ready Accepted BackendAvailable DurabilityMet ReshardingComplete GuardAvailable ObjectiveMet",
        "False": "Degraded Suspended",
    }
    silent = [
        reasons[0]
        for kind, reasons, status, do in conditions()
        if kind not in fine.get(status, "") and not do
    ]
    assert set(silent) <= {
        *REASONS["ScalingActive"],
        "NewReplicaSetAvailable",
        "DesiredWithinRange",
    }


def test_every_event_is_there_with_its_type_and_when() -> None:
    reported = {words(row[0])[0]: row[1] for row in rows("Events")}
    assert reported == events.REASONS
    assert all(row[2] for row in rows("Events"))


def test_every_event_that_is_posted_has_a_reason_of_the_table() -> None:
    posted = set(re.findall(r"\.post\(\s*\w+, \"(\w+)\"", CODE))
    turned = {
        *report.TURNED.values(),
        *(event for event, _ in report.ENDED.values()),
        *sum(report.NAMED.values(), ()),
    }
    assert posted | turned | {scaler.UP, scaler.DOWN} == set(events.REASONS)


def test_every_reason_that_becomes_an_event_is_a_reason_of_its_condition() -> None:
    for kind, reasons in report.NAMED.items():
        assert set(reasons) <= set(REASONS[kind])
    for kind, before, now in report.TURNED:
        assert {before or "True", now} <= set(REASONS[kind].values()) | {"False"}
    assert set(report.ENDED) <= set(REASONS["Progressing"])


def test_every_metric_is_there_with_its_kind_labels_and_help() -> None:
    known = [
        [
            f"`{metric._name}{'_total' if metric._type == 'counter' else ''}`",
            metric._type,
            ", ".join(metric._labelnames),
            metric._documentation,
        ]
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
    ]
    assert rows("Metrics") == known


def test_every_end_of_a_reconciliation_is_explained() -> None:
    assert set(RETRY_SECONDS) <= set(words(section("Metrics")))
    named = metrics.RECONCILES._documentation.partition(": ")[2].rstrip(".").split(", ")
    assert set(named) == set(RETRY_SECONDS)


def test_every_exit_code_is_there() -> None:
    codes = {process.STOPPED, process.FAILED, process.DENIED, process.LEADERSHIP_LOST}
    wrong_options = 2  # click's
    assert {int(row[0]) for row in rows("Exit codes")} == {*codes, wrong_options}


def test_every_option_is_there_with_its_default() -> None:
    reported = {words(row[0])[0]: row[1].strip("`") for row in rows("Options")}
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    known = {"/".join((*each.opts, *each.secondary_opts)): each for each in shown}
    assert set(reported) == set(known)
    for name, option in known.items():
        if option.default not in (None, True, ()) and not option.required:
            assert (
                reported[name] == f"{option.default:g}"
                if isinstance(option.default, float)
                else str(option.default)
            )
        assert (reported[name] == "required") is option.required


def test_every_log_event_is_there_and_every_one_that_is_there_is_logged() -> None:
    logged = set(
        re.findall(r"\blog\.(?:debug|info|warning|error|critical|exception)\(\s*\"([a-z_]+)\"", CODE)
    )
    assert {name for row in rows("Log events") for name in words(row[0])} == logged


def test_every_right_that_the_chart_gives_is_there_with_its_verbs() -> None:
    """Whether the operator needs just these is asked of an audit log, in tests/cluster/test_rbac.py."""
    chart = (ROOT / "charts" / "delayq" / "templates" / "rbac.yaml").read_text()
    text = chart.split('define "delayq.rules" -}}')[1].split("{{- end }}\n{{- end }}")[0]
    rules = yaml.safe_load(re.sub(r"\{\{- (if [^}]+|end )\}\}", "", text))
    given = {resource: rule["verbs"] for rule in rules for resource in rule["resources"]}
    reported = {
        resource.strip("`").lower(): row[1].split(", ")
        for row in rows("Permissions")
        for resource in row[0].split(", ")
        if not resource.startswith("the ")  # with a name
    }
    assert reported == given


def test_every_alert_is_listed_with_its_runbook_and_severity() -> None:
    """Those of the chart, and those that come with a queue."""
    table = (FOLDER / "alerts.md").read_text()
    reported = dict(re.findall(r"^\| \[`(\w+)`\]\(\.\./runbooks/\1\.md\) \| (\w+) \|", table, re.MULTILINE))
    rule = prometheus_rule(queue(RICH), facts(queue(RICH)))
    assert rule is not None
    known = yaml.safe_load((ROOT / "charts" / "delayq" / "files" / "alerts.yaml").read_text())
    of_a_queue = rule["spec"]["groups"][0]["rules"]
    page = (FOLDER / "templates.md").read_text()
    assert set(re.findall(r"`(DelayQueue[A-Z]\w+)`", page)) == {each["alert"] for each in of_a_queue}
    known += of_a_queue
    assert reported == {alert["alert"]: alert["labels"]["severity"] for alert in known}
    assert {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} >= set(reported)
