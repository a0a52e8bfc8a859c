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
    from collections.abc import Iterator

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


def baselines() -> Iterator[Baseline]:
    """Oldest first."""
    for each in tomllib.loads((HERE / "baselines.toml").read_text())["baseline"]:
        yield Baseline(each["version"], each["commit"])
