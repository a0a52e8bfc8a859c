"""What README and the example promise: `make run` works. Its commands and documents: tests/contract/test_pages.py."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SUMMARY = r"^handled=(\d+) retried=(\d+) dead=(\d+) early=(\d+) p50_ms=(\d+\.\d) p99_ms=(\d+\.\d)$"


@pytest.fixture
def hello(tmp_path: Path) -> Iterator[Process]:
    """The example on its own, so that a run of yours beside it is not disturbed."""
    copy = shutil.copytree(
        ROOT / "examples" / "hello", tmp_path / "hello", ignore=shutil.ignore_patterns(".delayq", "shop.db*")
    )
    process = Process.start(sys.executable, str(copy / "run.py"), cwd=tmp_path)
    yield process
    process.stop(timeout_s=60)


def test_the_example_accounts_for_every_order(hello: Process) -> None:
    assert hello.wait(timeout_s=90) == 0, hello.output
    summary = re.match(SUMMARY, hello.lines[-1])
    assert summary, hello.output
    # 100 gateways down once, and two more runs of each of 20 damaged cards.
    assert summary.groups()[:4] == ("1000", "140", "20", "0")


def test_every_python_example_in_readme_compiles() -> None:
    for source in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL):
        ast.parse(source)
