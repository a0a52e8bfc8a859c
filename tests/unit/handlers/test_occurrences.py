"""Services and commands are told of which schedule a task is an occurrence, and its nominal time."""

from __future__ import annotations

from delayq import Task
from delayq.handlers.exec import task_env
from delayq.handlers.http_post import task_headers
from delayq.protocol.envelope import JSON_TYPE


def task(nominal_ms: int | None) -> Task:
    task_id = "@nightly@2026-12-01T02:00:00Z"
    return Task(task_id, "orders", 1, 7, 5, 5, b"{}", JSON_TYPE, {}, nominal_ms=nominal_ms)


def test_an_occurrence_has_two_headers_and_two_variables_more() -> None:
    headers, variables = task_headers(task(1_796_090_400_000)), task_env(task(1_796_090_400_000))
    assert headers.items() - task_headers(task(None)).items() == {
        ("Delayq-Schedule", "nightly"),
        ("Delayq-Nominal-Ms", "1796090400000"),
    }
    assert variables.items() - task_env(task(None)).items() == {
        ("DELAYQ_SCHEDULE", "nightly"),
        ("DELAYQ_NOMINAL_MS", "1796090400000"),
    }
