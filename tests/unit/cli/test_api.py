"""delayq api serves one queue; delayq api-token prints a token and what a Secret has for it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import yaml

from tests.unit.cli.runner import run
from tests.unit.cli.test_documents import RIGHT

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_token_is_printed_with_its_hash() -> None:
    first, second = (yaml.safe_load(run("api-token").stdout) for _ in range(2))
    assert first["token"] != second["token"]
    assert first["sha256"] == hashlib.sha256(first["token"].encode()).hexdigest()


def test_a_file_of_several_queues_needs_the_name_of_one(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(f"{RIGHT}\n---\n{RIGHT.replace('orders', 'mails')}")
    result = run("api", str(path))
    assert (result.exit_code, "expected one queue, got orders, mails" in result.stderr) == (2, True)
    assert "choose it with --queue NAME" in result.stderr
