"""tools/build-images itself: nothing to do in an instant, and the same image from the same files."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "build-images"


@pytest.mark.usefixtures("images")
@pytest.mark.timeout(900)
def test_what_is_built_is_not_built_again() -> None:
    """The quickest of some calls: other tests may keep the machine busy."""
    subprocess.run([TOOL], check=True)  # the checkout may have changed since
    taken = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run([TOOL], capture_output=True, text=True, check=True)
        taken.append(time.monotonic() - began)
        assert (done.stderr, done.stdout) == ("", "")
    made = sorted(each.stem for each in (ROOT / ".cache" / "images").glob("*.tar"))
    assert made == ["hello", "operator", "redis", "shop", "worker"]
    assert min(taken) < 5, "to build the quickest of them takes ten seconds"


@pytest.mark.usefixtures("images")
@pytest.mark.timeout(1800)
def test_the_same_files_make_the_same_image() -> None:
    """Twice from nothing but the base: the id covers each layer's bytes and all that the image says of itself."""
    done = subprocess.run([TOOL, "--again", "worker"], stdout=subprocess.PIPE, text=True, check=False)
    found = re.fullmatch(r"delayq-worker: (\w{64}) (\w{64})\n", done.stdout)
    assert found, done.stdout
    assert found[1] == found[2]
    assert done.returncode == 0
