"""The builds of baselines.toml, unpacked from this checkout's history."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.mark import ParameterSet

HERE = Path(__file__).parent


class Baseline(NamedTuple):
    """A build that users may come from, and go back to."""

    version: str
    commit: str

    def unpack(self, folder: Path, *paths: str) -> Path:
        """Write these folders of the commit to `folder`; skips the test where the history does not reach back."""
        command = ["git", "-C", str(HERE.parents[1]), "archive", self.commit, "--", *paths]
        made = subprocess.run(command, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"version {self.version} is not in this checkout: {made.stderr.decode().strip()}")
        with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return folder


def baselines() -> list[Baseline]:
    """Oldest first; while there is none, the commit that is checked out, so that the tests themselves stay proven."""
    found = tomllib.loads((HERE / "baselines.toml").read_text()).get("baseline", [])
    return [Baseline(each["version"], each["commit"]) for each in found] or [Baseline("HEAD", "HEAD")]


def cases() -> list[ParameterSet]:
    """All as parameters of a test; `make test` has the newest, from which most users come, `make test-all` all."""
    *older, newest = baselines()
    marked = [pytest.param(each, id=each.version, marks=pytest.mark.full) for each in older]
    return [*marked, pytest.param(newest, id=newest.version)]


def naming(document: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The words that name a document to a process of the build on this PYTHONPATH: 0.7 has an option for it."""
    code = Path(environment.get("PYTHONPATH", "").partition(":")[0], "delayq/cli/process.py")
    return ("--config", document) if code.is_file() and '"--config"' in code.read_text() else (document,)
