"""docs/how-to/deadlines.md: its tests pass as the page says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.examples.test_kinds_doc import HOW_TO, blocks
from tests.processes import Process

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    tasks, tests = blocks((HOW_TO / "deadlines.md").read_text())
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text(tasks)
    (tmp_path / "test_shop.py").write_text(tests)
    process = Process.start(sys.executable, "-m", "pytest", "-q", cwd=tmp_path)
    assert process.wait(timeout_s=60) == 0, process.output
    assert "2 passed" in process.output
