"""docs/how-to/from-rabbitmq-delayed.md: the queue that replaces the plugin runs as the page shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.running import HOW_TO, blocks, done, served, url, write

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (HOW_TO / "from-rabbitmq-delayed.md").read_text()


def test_what_replaces_the_plugin_runs(tmp_path: Path) -> None:
    _before, tasks, place, _bridge = blocks(PAGE)
    [document] = blocks(PAGE, "yaml")
    write(tmp_path, {"queue.yaml": document, "shop/tasks.py": tasks, "place.py": place})
    with served(tmp_path) as run:
        shown = done("python", "place.py", cwd=tmp_path, env={"SHOP_REDIS_URL": url(tmp_path)})
        assert "id='cancel_unpaid:order-7'" in shown
        run.wait_line("order 7 cancelled$")
