"""Pods of an older image read the document that this build's operator writes: worker images are upgraded last."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq.contract import parse
from delayq_operator.desired.config import text

from tests.upgrade.baselines import Baseline, baselines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = "tests/unit/operator/queues.py"
PARSE = """
import sys, yaml
from delayq.contract import parse
for document in yaml.safe_load_all(sys.stdin):
    parse(document)
"""


@pytest.mark.parametrize("older", baselines(), ids=lambda baseline: baseline.version)
def test_an_older_image_reads_the_document_of_a_queue_that_uses_nothing_new(
    older: Baseline, tmp_path: Path
) -> None:
    """A new field with a default in the document would be one that older pods refuse, in queues that do not use it."""
    build = older.unpack(tmp_path, "worker", QUEUES)
    documents = [text(parse(yaml.safe_load(each))) for each in written(build / QUEUES)]
    assert len(documents) == 2
    read = subprocess.run(
        [sys.executable, "-c", PARSE],
        input="---\n".join(documents),
        env={"PYTHONPATH": str(build / "worker")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not read.stderr
    assert not read.returncode


def written(module: Path) -> Iterator[str]:
    """The documents that it has as text. It is not imported: its own imports may have moved since."""
    for each in ast.parse(module.read_text()).body:
        match each:
            case ast.Assign(value=ast.Constant(value=str(document))) if "kind: DelayQueue" in document:
                yield document
