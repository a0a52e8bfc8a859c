"""docs/how-to/retries.md: its documents and its App wait as the page says."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq.contract import parse
from delayq.worker.backoff import delay_ms

from tests.examples.running import HOW_TO, blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delayq.contract.delivery import Delivery
    from delayq.testing import Queue

PAGE = (HOW_TO / "retries.md").read_text()
NO_JITTER, MOST = 0.0, 0.999_999_999


def delivery(fields: dict[str, Any]) -> Delivery:
    """That of a DelayQueue with these fields in its `spec`."""
    document = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "shop"}}
    handler = {"python": {"app": "tasks:app"}}
    return parse(
        {**document, "spec": {"redis": {"standalone": {"host": "redis"}}, "handler": handler, **fields}}
    ).spec.delivery


def test_the_documents_of_the_page_wait_as_it_says() -> None:
    found = [delivery(yaml.safe_load(block)) for block in blocks(PAGE, "yaml")]
    fixed, listed, exponential = found
    waits = [[delay_ms(n, each.backoff, NO_JITTER) // 1000 for n in (1, 2, 3, 4, 11)] for each in found]
    assert waits == [[30] * 5, [10, 60, 600, 600, 600], [10, 20, 40, 80, 3600]]
    assert delay_ms(2, exponential.backoff, MOST) == pytest.approx(16_000, abs=1)
    assert [each.max_attempts for each in (fixed, listed, exponential)] == [8, 8, 12]
    defaults = delivery({"delivery": {"backoff": {"exponential": {}}}})
    assert defaults.backoff == exponential.backoff, "the page writes out all defaults"


def test_the_app_of_the_page_waits_as_it_says(
    delayq_queue: Callable[..., Queue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [source] = blocks(PAGE)
    (tmp_path / "tasks_of_retries.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    tasks: Any = importlib.import_module("tasks_of_retries")
    del sys.modules["tasks_of_retries"]
    policies = {kind.name: kind.policy.delays_seconds for kind in tasks.app}
    assert policies["fixed"] == (30,)
    assert policies["listed"] == (10, 60, 600)
    assert policies["exponential"] == (10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600)
    queue = delayq_queue(tasks.app)
    tasks.jittered.schedule_sync(order=7)
    for wait in (10, 20, 40):
        [run] = queue.run_due()
        assert (run.outcome, run.error) == ("retried", "the bank is closed")
        queue.advance(seconds=wait * 0.5)
        assert queue.run_due() == []
        queue.advance(seconds=wait * 0.5 + 0.001)
    tasks.jittered.schedule_sync(order=-1)
    assert {(run.outcome, run.error) for run in queue.run_due()} >= {("buried", "no such order")}
