"""Schemathesis sends what openapi.json allows and forbids: each answer is one that it describes, and none is 500.

Without the check positive_data_acceptance: a schema cannot say that a cursor is one of an answer before, which
parameters exclude each other, or that a task is one that the worker's limits allow.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.http_api import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Served

PROGRAM = Path(sys.executable).with_name("schemathesis")


@pytest.fixture
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    retention = {"finished": {"seconds": 3600}}
    with serving(flavour, tmp_path_factory.mktemp("api"), retention=retention, schedules={}) as served:
        yield served


def fuzz(api: Served, tmp_path: Path, *options: str) -> None:
    """Run Schemathesis against a running API; it exits with 1 if it finds anything."""
    command = [str(PROGRAM), "run", f"http://127.0.0.1:{api.port}/v1alpha1/openapi.json", *options]
    command += ["--exclude-checks", "positive_data_acceptance", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert re.search(r"Tested: 2\d", done.stdout), done.stdout
    assert not api.process.ended


def test_schemathesis_finds_nothing(api: Served, tmp_path: Path) -> None:
    """Once for each boundary of each field; IDs as ?id= are left to the long test."""
    fuzz(api, tmp_path, "--phases", "coverage", "--exclude-operation-id-regex", "ById$")


@pytest.mark.full
def test_schemathesis_finds_nothing_in_two_minutes(api: Served, tmp_path: Path) -> None:
    fuzz(api, tmp_path, "--max-time", "120", "--generation-database", "none")
