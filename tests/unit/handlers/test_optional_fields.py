"""Services and commands get the schedule, nominal time, tags and end of the deadline of a task that has them."""

from __future__ import annotations

from dataclasses import replace

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


def test_a_task_with_tags_and_a_deadline_has_two_headers_and_two_variables_more() -> None:
    plain = Task("x", "orders", 1, 7, 5, 5, b"{}", JSON_TYPE, {})
    tagged = replace(plain, tags=("customer:7", "café"), deadline_ms=1000)
    assert task_headers(tagged).items() - task_headers(plain).items() == {
        ("Delayq-Tags", "UTF-8''customer%3A7%20caf%C3%A9"),
        ("Delayq-Expires-Ms", "1005"),
    }
    assert task_env(tagged).items() - task_env(plain).items() == {
        ("DELAYQ_TAGS", "customer:7 café"),
        ("DELAYQ_EXPIRES_MS", "1005"),
    }
