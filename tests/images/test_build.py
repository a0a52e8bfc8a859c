"""tools/build-images makes the same image from the same files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "build-images"


@pytest.mark.full  # it computes for a minute; test_contents.py has what makes it so: times, and bytecode by hash
@pytest.mark.usefixtures("images")
@pytest.mark.timeout(1800)
def test_the_same_files_make_the_same_image() -> None:
    """Twice from nothing but the base: the id covers each layer's bytes and all that the image says of itself."""
    done = subprocess.run([TOOL, "--again", "worker"], stdout=subprocess.PIPE, text=True, check=False)
    found = re.fullmatch(r"delayq-worker: (\w{64}) (\w{64})\n", done.stdout)
    assert found, done.stdout
    assert found[1] == found[2]
    assert done.returncode == 0
