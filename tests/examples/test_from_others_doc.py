"""The pages for those who come from other systems: the App that replaces what they had runs as it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.examples.running import HOW_TO, blocks, done, served, url, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("name", "said"), [("from-celery", "due_ms="), ("from-rabbitmq-delayed", "order-7")])
def test_what_replaces_the_other_system_runs(name: str, said: str, tmp_path: Path) -> None:
    page = (HOW_TO / f"{name}.md").read_text()
    _before, tasks, place = blocks(page)[:3]
    [document] = blocks(page, "yaml")
    write(tmp_path, {"queue.yaml": document, "shop/tasks.py": tasks, "place.py": place})
    with served(tmp_path) as run:
        shown = done("python", "place.py", cwd=tmp_path, env={"DELAYQ_REDIS_URL": url(tmp_path)})
        assert said in shown
        run.wait_line("order 7 cancelled$")
