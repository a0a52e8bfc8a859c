"""The pages of processes, metrics and log events, and docs/explanation/guarantees.md, describe what exists."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from delayq.contract import metrics
from delayq.protocol.commands import GONE_MS
from delayq.service.logs import JsonFormatter

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = sorted((ROOT / "worker" / "delayq").rglob("*.py"))


def events_in_code() -> set[str]:
    """Every event that is logged: the first argument of a log call, or assigned to `event`."""
    text = "\n".join(path.read_text() for path in SOURCES)
    called = re.findall(r"\blog\.(?:debug|info|warning|error|exception)\(\s*\"([a-z_]+)\"", text)
    levelled = re.findall(r"\blog\.log\(\s*\w+,\s*\"([a-z_]+)\"", text)
    made = re.findall(r"\blog\.makeRecord\([^\"]*\"([a-z_]+)\"", text)
    assigned = re.findall(r"event = \"([a-z_]+)\" if \w+(?:\.\w+)* else \"([a-z_]+)\"", text)
    by_error = re.findall(
        r"(?:Guard\w+|Retry|ArgumentsRefused): \"((?:guard|handler|arguments)_[a-z_]+)\",", text
    )  # executor.py's table
    failed = re.findall(r"_failed\(\"([a-z_]+)\"", text)
    return {*called, *levelled, *made, *failed, *by_error, *(name for pair in assigned for name in pair)}


def events_in_docs() -> set[str]:
    table = (REFERENCE / "log-events.md").read_text()
    first_cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell)}


def test_every_log_event_is_documented_and_every_documented_one_logged() -> None:
    assert events_in_docs() == events_in_code()


def test_the_name_of_an_event_is_literal_or_in_the_variable_that_the_test_above_reads() -> None:
    calls = re.compile(r"\blog\.(?:debug|info|warning|error|exception)\(\s*([a-z_]\w*)")
    assert {name for path in SOURCES for name in calls.findall(path.read_text())} == {"event"}


def test_the_page_names_every_key_of_a_line_that_is_no_field_of_the_event() -> None:
    error = (ValueError, ValueError("x"), None)
    record = logging.LogRecord("delayq.worker", logging.INFO, "", 1, "started", None, error)
    above = (REFERENCE / "log-events.md").read_text().split("| event |")[0]
    assert {key for key in json.loads(JsonFormatter().format(record)) if f"`{key}`" not in above} == set()


def test_the_pages_say_for_how_long_an_erased_shard_keeps_a_key() -> None:
    days = f"expires after {GONE_MS // 86_400_000} days"
    for page in ("reference/operator", "contributing/architecture"):
        assert days in (ROOT / "docs" / f"{page}.md").read_text()


def test_every_metric_is_in_the_table_with_its_kind_labels_and_help() -> None:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"
        for metric in metrics.METRICS
    ]
    table = (REFERENCE / "metrics.md").read_text()
    assert re.findall(r"^\| `.*$", table, re.MULTILINE) == rows


def test_every_test_that_a_guarantee_names_exists() -> None:
    named = re.findall(r"tests/[\w/]+\.py", (ROOT / "docs" / "explanation" / "guarantees.md").read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
