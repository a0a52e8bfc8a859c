"""docs/how-to/kinds.md, batches.md, deadlines.md and test-tasks.md: what they show runs as they say."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.examples.running import HOW_TO, blocks, client, done, served, url, write
from tests.processes import DELAYQ

if TYPE_CHECKING:
    from pathlib import Path


def test_the_app_of_the_page_runs_its_kinds_and_parks_others(tmp_path: Path) -> None:
    page = (HOW_TO / "kinds.md").read_text()
    tasks, plan, *_ = blocks(page)
    document, *_ = blocks(page, "yaml")
    write(tmp_path, {"shop/tasks.py": tasks, "plan.py": plan, "queue.yaml": document})
    with served(tmp_path) as run:
        done("python", "plan.py", cwd=tmp_path, env={"DELAYQ_REDIS_URL": url(tmp_path)})
        run.wait_line("reminder about order 7")
        run.wait_line("order 7 cancelled: unpaid")
        by_hand = ('{"order": 8, "reason": "asked"}', "--kind", "cancel_unpaid", "--id", "by-hand")
        done(DELAYQ, "schedule", "queue.yaml", *by_hand, cwd=tmp_path)
        run.wait_line("order 8 cancelled: asked")
        with client(tmp_path) as orders:
            orders.schedule({}, delay_ms=0, kind="refund", task_id="unknown")
            run.wait_line("kind_unknown.*kind=refund version=1 tasks=1")
            run.wait_line("parked 1")
            found = orders.get("unknown", kind="refund")
    assert found is not None
    assert (found.state, found.kind, found.failed.failures) == ("parked", "refund", 0)


@pytest.mark.parametrize("page", ["test-tasks.md", "deadlines.md"])
def test_the_tests_of_the_page_pass_with_nothing_but_the_installed_plugin(page: str, tmp_path: Path) -> None:
    tasks, tests = blocks((HOW_TO / page).read_text())
    write(tmp_path, {"shop/tasks.py": tasks, "test_shop.py": tests})
    assert "2 passed" in done("python", "-m", "pytest", "-q", cwd=tmp_path)


def test_the_batch_of_the_page_stores_500_tasks_with_a_few_inserts(tmp_path: Path) -> None:
    page = (HOW_TO / "batches.md").read_text()
    tasks, plan, _ = blocks(page)
    [document] = blocks(page, "yaml")
    write(tmp_path, {"shop/events.py": tasks, "plan.py": plan, "queue.yaml": document})
    with served(tmp_path) as run:
        done("python", "plan.py", cwd=tmp_path, env={"DELAYQ_REDIS_URL": url(tmp_path)})
        by_hand = ('{"order": 500, "name": "paid"}', "--kind", "store", "--id", "by-hand")
        done(DELAYQ, "schedule", "queue.yaml", *by_hand, cwd=tmp_path)
        run.wait_line("stored 1 events")
        with client(tmp_path) as events:
            while events.counts().waiting or events.counts().in_flight:
                time.sleep(0.05)
    sizes = [int(count) for count in re.findall(r"stored (\d+) events", run.output)]
    assert (sum(sizes), max(sizes) > 100) == (501, True), sizes
    with closing(sqlite3.connect(tmp_path / "events.db")) as database:
        [(rows, names)] = database.execute("SELECT count(*), count(DISTINCT name) FROM events")
    assert (rows, names) == (501, 1)
