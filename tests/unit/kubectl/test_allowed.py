"""A report shows what the allow-list names. A secret is planted in every other place."""

from __future__ import annotations

import json
import stat
import time
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from delayq_operator.kubectl import report
from delayq_operator.kubectl.allowed import LEFT_OUT, log, metrics, sentence, shown

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "S3CRET"  # noqa: S105 -- the plant
STARTED = json.dumps(
    {"time": "2026-01-01T00:00:00Z", "logger": "delayq.processes.runtime", "event": "started", "port": 8080}
)


def show(**body: Any) -> Any:  # noqa: ANN401  an object of the API
    return shown({"metadata": {"name": "x"}, **body})


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"queue.yaml": SECRET, "name": SECRET}, "binaryData": {"key": SECRET}},
        {"metadata": {"name": "x", "annotations": {"vault/token": SECRET, "delayq.dev/document": SECRET}}},
        {"metadata": {"name": "x", "labels": {"key": SECRET}, "managedFields": [{"name": SECRET}]}},
        {"spec": {"handler": {"exec": {"command": [SECRET], "env": {"name": SECRET}}}}},
        {"spec": {"handler": {"http": {"url": SECRET, "headers": {"host": SECRET}}}}},
        {"spec": {"worker": {"template": {"metadata": {"name": SECRET}}}}},
        {"spec": {"anything": {"new": SECRET, "message": SECRET, "list": [SECRET]}}},
        {"status": {"conditions": [{"message": f"orders-worker-1: Error: charging {SECRET}"}]}},
        {"status": {"conditions": [{"message": f"Not reachable\n{SECRET}"}]}},
        {"status": {"anything": [{"message": f"charging {SECRET}", "new": SECRET}]}},
    ],
    ids=str,
)
def test_nothing_else_is_shown(body: dict[str, Any]) -> None:
    assert SECRET not in yaml.safe_dump(show(**body))


def test_settings_conditions_and_metrics_of_delayq_are_shown() -> None:
    spec: dict[str, Any] = {
        "redis": {
            "standalone": {"host": "redis.shop.svc", "port": 6379},
            "auth": {"passwordSecretRef": {"name": "redis-auth"}},
        },
        "handler": {"python": {"callable": "shop.orders:cancel"}},
        "worker": {"concurrency": 8},
    }
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Unreachable",
        "message": "Redis at redis:6379 is away",
    }
    body = {"spec": spec, "status": {"conditions": [condition], "replicas": 3}}
    template = {"worker": {**spec["worker"], "template": {"spec": {"name": SECRET}}}}
    assert show(**{**body, "spec": spec | template}) == {"metadata": {"name": "x"}, **body}
    scraped = '# TYPE a gauge\ndelayq_due 1\nshop_card{number="4111"} 1'
    assert metrics(scraped) == "# TYPE a gauge\ndelayq_due 1"


def test_a_log_has_delayqs_events_and_counts_other_lines() -> None:
    text = f'{STARTED}\npaying 4111\n{{"event": "paid", "logger": "shop"}}\n{{"broken\n{STARTED}\nbye'
    assert log(text).splitlines() == [STARTED, STARTED, "<4 lines left out>"]


def test_an_event_shows_names_and_numbers_and_quotes_nothing() -> None:
    fields = {
        "task_id": "order-7",
        "attempt": 2,
        "error": "ValueError: 4111",
        "output": "4111",
        "reason": "4111",
    }
    hidden = {"new": "4111", "deep": {"a": "4111"}}
    for event in ("handler_failed", "command_exited", "recovered", "some_event_of_tomorrow"):
        line = json.dumps({"logger": "delayq.worker.executor", "event": event, **fields, **hidden})
        found = json.loads(log(line))
        assert "4111" not in str(found)
        shown = (found["task_id"], found["attempt"], found["error"])
        assert shown == ("order-7", 2, f"ValueError: {LEFT_OUT}")


@pytest.mark.parametrize(
    "message",
    [
        f"GET https://ada:{SECRET}@pay/x failed",
        f"https://hooks/{SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"the proxy said Cookie: {SECRET}",
        f"it ended\n{SECRET}",
    ],
)
def test_what_a_message_quotes_is_left_out(message: str) -> None:
    assert SECRET not in sentence(message)


@pytest.mark.parametrize(
    "text", ["-" * 200_000, "a" * 200_000, "x://" * 50_000, "A." * 100_000, "[" * 100_000]
)
def test_long_lines_take_no_longer_than_their_length(text: str) -> None:
    """In processor time, which other work does not lengthen: quadratic matching takes minutes."""
    begin = time.process_time()
    log(text)
    log(json.dumps({"logger": "delayq", "error": text}))
    sentence(text)
    assert time.process_time() - begin < 10


def test_only_its_owner_can_read_a_report_and_no_file_is_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "report"
    report._write(target, "title", {"a": "text"})
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for there in (target, link):
        with pytest.raises(click.ClickException, match="File exists"):
            report._write(there, "title", {})
