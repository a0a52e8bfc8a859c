"""tools/build-images throws results away, below a user's home: its own, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "build-images"


def test_only_old_results_are_thrown_away(tmp_path: Path) -> None:
    """A home with a space in it loses nothing beside the cache, and a cache nothing but what is named by a digest."""
    cache = tmp_path / "John Doe" / "images"
    results = [f"{number:016x}" for number in range(6)]
    others = ["storage", "two words", "0000000000000009\n0000000000000005"]
    for age, name in enumerate([*results, *others]):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (age, age))
    (tmp_path / "John").mkdir()
    defined = re.search(r"^throw_away\(\).*?^\)$", TOOL.read_text(), re.DOTALL | re.MULTILINE)
    assert defined
    script = f"set -euo pipefail; buildah_() {{ :; }}; KEEP=4\n{defined[0]}\nthrow_away"
    subprocess.run(["bash", "-c", script], env={**os.environ, "CACHE": str(cache)}, check=True)
    assert {each.name for each in cache.iterdir()} == {*results[2:], *others}
    assert {each.name for each in tmp_path.iterdir()} == {"John", "John Doe"}
