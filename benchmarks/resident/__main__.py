"""`make bench-resident`, or `python -m benchmarks.resident --against HEAD~1`: memory of each process while it is idle.

Both commits run with the libraries that are installed here. Runs alternate. The first start of each process is not
counted: it may compile modules, which leaves 8 MB behind.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import yaml

from benchmarks.handlers import LEDGER
from tests.processes import running
from tests.servers import PREFERRED, RedisServer
from tests.upgrade.baselines import naming

ROOT = Path(__file__).parents[2]
ROLES = {"worker": (), "scanner": (), "reaper": ("--for", "0s")}  # and what keeps it from ending by itself


class Memory(NamedTuple):
    """Of one process, in MB of 1024 KB."""

    resident: float
    proportional: float
    """Pages that n processes share count as one nth."""
    anonymous: float

    @classmethod
    def of(cls, pid: int) -> Memory:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kilobytes = {
            name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)
        }
        return cls(*(kilobytes[name] / 1024 for name in ("Rss", "Pss", "Anonymous")))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident", description=__doc__)
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="compare with it (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="starts of each process (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        export(options.against, other)
        trees = {options.against: other, "here": ROOT}
        server = RedisServer.start(PREFERRED, dir=Path(folder) / "redis")
        try:
            document = document_at(Path(folder), server.port)
            for role in ROLES:
                _print(role, _measured(role, document, trees, options.runs))
        finally:
            server.stop()
    return 0


def export(commit: str, folder: Path) -> None:
    """Unpack `worker` of a commit into a new folder."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "worker"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def document_at(folder: Path, port: int) -> Path:
    spec = {
        "redis": {"standalone": {"host": "127.0.0.1", "port": port}},
        "handler": {"python": {"callable": "benchmarks.handlers:noop"}},
    }
    head = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "resident"}}
    path = folder / "queue.yaml"
    path.write_text(yaml.safe_dump({**head, "spec": spec}))
    return path


def _measured(role: str, document: Path, trees: dict[str, Path], runs: int) -> dict[str, list[Memory]]:
    found: dict[str, list[Memory]] = {name: [] for name in trees}
    for _ in range(runs + 1):
        for name, tree in trees.items():
            found[name].append(_once(role, document, tree))
    return {name: each[1:] for name, each in found.items()}


def _once(role: str, document: Path, tree: Path) -> Memory:
    env = {"PYTHONPATH": str(tree / "worker"), "PYTHONDONTWRITEBYTECODE": "", LEDGER: "/dev/null"}
    argv = (sys.executable, "-m", "delayq", role, *naming(str(document), env), "--port", "0", *ROLES[role])
    with running(*argv, env=env, cwd=ROOT) as process:
        port = yaml.safe_load(process.wait_line('"started"'))["port"]
        for path in ("readyz", "metrics"):
            process.wait_http(f"http://127.0.0.1:{port}/{path}")
        return Memory.of(process.pid)


def _print(role: str, found: dict[str, list[Memory]]) -> None:
    for name, runs in found.items():
        rss, pss, anonymous = (median(each) for each in zip(*runs, strict=True))
        print(
            f"{role:<8} {name:<10} {rss:5.1f} MB resident {pss:5.1f} MB proportional {anonymous:5.1f} MB anonymous"
        )


if __name__ == "__main__":
    sys.exit(main())
