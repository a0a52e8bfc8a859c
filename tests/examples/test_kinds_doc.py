"""docs/how-to/kinds.md and test-tasks.md: their documents, Apps, programs and tests run as the pages say."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from delayq import SyncClient

from tests.processes import DELAYQ, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (HOW_TO / "kinds.md").read_text()


def blocks(page: str) -> list[str]:
    found: list[str] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found


PYTHON = blocks(PAGE)
DOCUMENT, *_ = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Process]:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(PYTHON[0])
    (tmp_path / "plan.py").write_text(PYTHON[1])
    (tmp_path / "queue.yaml").write_text(DOCUMENT)
    process = Process.start(
        DELAYQ, "run", "queue.yaml", cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    process.wait_line("due 0", timeout_s=60)
    yield process
    process.stop(timeout_s=60)


def test_the_app_of_the_page_runs_its_kinds_and_parks_others(run: Process, tmp_path: Path) -> None:
    url = (tmp_path / ".delayq" / "redis.url").read_text().strip()
    env = {**os.environ, "SHOP_REDIS_URL": url}
    assert Process.start(sys.executable, "plan.py", cwd=tmp_path, env=env).wait(timeout_s=60) == 0
    run.wait_line("reminder about order 7", timeout_s=60)
    run.wait_line("order 7 cancelled: unpaid", timeout_s=60)
    options = ("--kind", "cancel_unpaid", "--id", "by-hand")
    argv = (DELAYQ, "schedule", "queue.yaml", '{"order": 8, "reason": "asked"}', *options)
    assert Process.start(*argv, cwd=tmp_path).wait(timeout_s=60) == 0
    run.wait_line("order 8 cancelled: asked", timeout_s=60)
    with SyncClient.from_document(tmp_path / "queue.yaml", url=url) as client:
        client.schedule({}, delay_ms=0, kind="refund", task_id="unknown")
        run.wait_line("kind_unknown.*kind=refund version=1 tasks=1", timeout_s=60)
        run.wait_line("parked 1", timeout_s=60)
        found = client.get("unknown")
    assert found is not None
    assert (found.state, found.kind, found.failed.failures) == ("parked", "refund", 0)


def test_the_tests_of_the_page_pass_with_nothing_but_the_installed_plugin(tmp_path: Path) -> None:
    tasks, tests = blocks((HOW_TO / "test-tasks.md").read_text())
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(tasks)
    (tmp_path / "test_shop.py").write_text(tests)
    process = Process.start(sys.executable, "-m", "pytest", "-q", cwd=tmp_path)
    assert process.wait(timeout_s=60) == 0, process.output
    assert "2 passed" in process.output


def test_the_batch_of_the_page_stores_500_tasks_with_a_few_inserts(tmp_path: Path) -> None:
    page = (HOW_TO / "batches.md").read_text()
    tasks, plan, _ = blocks(page)
    [document] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "events.py").write_text(tasks)
    (tmp_path / "plan.py").write_text(plan)
    (tmp_path / "queue.yaml").write_text(document)
    process = Process.start(DELAYQ, "run", "queue.yaml", cwd=tmp_path)
    try:
        process.wait_line("due 0", timeout_s=60)
        url = (tmp_path / ".delayq" / "redis.url").read_text().strip()
        env = {**os.environ, "SHOP_REDIS_URL": url}
        assert Process.start(sys.executable, "plan.py", cwd=tmp_path, env=env).wait(timeout_s=60) == 0
        by_hand = '{"order": 500, "name": "paid"}'
        argv = (DELAYQ, "schedule", "queue.yaml", by_hand, "--kind", "store", "--id", "by-hand")
        assert Process.start(*argv, cwd=tmp_path).wait(timeout_s=60) == 0
        process.wait_line("stored 1 events", timeout_s=60)
        with SyncClient.from_document(tmp_path / "queue.yaml", url=url) as client:
            while client.counts().waiting or client.counts().in_flight:
                time.sleep(0.05)
    finally:
        process.stop(timeout_s=60)
    sizes = [int(count) for count in re.findall(r"stored (\d+) events", process.output)]
    assert (sum(sizes), max(sizes) > 100) == (501, True), sizes
    with sqlite3.connect(tmp_path / "events.db") as database:
        [(rows, names)] = database.execute("SELECT count(*), count(DISTINCT name) FROM events")
    assert (rows, names) == (501, 1)
