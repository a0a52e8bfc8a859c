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


TRIVIAL = """
set -euo pipefail
work=$1; mount -t tmpfs none "$work"; mkdir -p "$work"/{etc,lib}-{upper,work} "$work/cache"
mount -t overlay -o "lowerdir=/etc,upperdir=$work/etc-upper,workdir=$work/etc-work" none /etc
mount -t overlay -o "lowerdir=/var/lib,upperdir=$work/lib-upper,workdir=$work/lib-work" none /var/lib
rm -rf /etc/cni
export XDG_CACHE_HOME=$work/cache
source <(grep -v '^main "\\$@"' "$0")
mkdir -p "$CACHE"; prepare
mkdir "$building/empty"; echo >"$building/empty/file"
build localhost/empty "$building/empty" -f - <<<$'FROM scratch\\nCOPY file /'
ls /etc/cni 2>&1 || echo "none"
"""


@pytest.mark.usefixtures("images")
def test_a_build_leaves_no_folder_of_networks_on_the_machine(tmp_path: Path) -> None:
    """With a trivial image, and with copies of the folders that buildah may write to."""
    command = ["unshare", "--mount", "bash", "-c", TRIVIAL, str(TOOL), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("none\n"), f"{done.stdout}{done.stderr}"
