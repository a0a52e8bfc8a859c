"""`python -m benchmarks.resident.small --against b82e2b0`: what the pods of an idle queue cost besides its worker.

Two scanners, and a reaper as often as the CronJob starts one by default, each as its pod runs it. A day's average of
memory counts the reaper for the part of the day in which it runs. Pages that processes share count once (PSS), as they
do for pods of one image on one node. The first start of each commit is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import yaml

from benchmarks.handlers import LEDGER
from benchmarks.resident.__main__ import ROOT, Memory, document_at, export
from tests.processes import Process, running
from tests.servers import PREFERRED, RedisServer
from tests.upgrade.baselines import naming

SCANNERS, DAY_SECONDS = 2, 86_400


class Build(NamedTuple):
    """A commit, and its reaper: the arguments of its pod, and seconds between two of them."""

    tree: Path
    reaper: tuple[str, ...]
    every_seconds: int


class Cost(NamedTuple):
    """Of one start of everything, in MB of 1024 KB and seconds."""

    scanners: float
    reaper: float
    reaper_seconds: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resident.small", description=__doc__)
    parser.add_argument(
        "--against", default="b82e2b0", metavar="COMMIT", help="compare with it (%(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="starts of everything (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        export(options.against, other)
        # Its operator ran a reaper every minute, for 55 s.
        older = Build(other, ("reap",), 60)
        server = RedisServer.start(PREFERRED, dir=Path(folder) / "redis")
        try:
            document = document_at(Path(folder), server.port)
            for name, build in ((options.against, older), ("here", Build(ROOT, ("reaper",), 300))):
                _print(name, build, [_once(build, document) for _ in range(options.runs + 1)][1:])
        finally:
            server.stop()
    return 0


def _once(build: Build, document: Path) -> Cost:
    env = {"PYTHONPATH": str(build.tree / "worker"), "PYTHONDONTWRITEBYTECODE": "", LEDGER: "/dev/null"}

    def argv(*words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "delayq", *words, *naming(str(document), env), "--port", "0")

    with ExitStack() as stack:
        scanners = [
            stack.enter_context(running(*argv("scanner"), env=env, cwd=ROOT)) for _ in range(SCANNERS)
        ]
        for scanner in scanners:
            port = _port(scanner)
            for path in ("readyz", "metrics"):
                scanner.wait_http(f"http://127.0.0.1:{port}/{path}")
        began = time.monotonic()
        reaper = stack.enter_context(running(*argv(*build.reaper), env=env, cwd=ROOT))
        _port(reaper)
        memory = Memory.of(reaper.pid).proportional
        total = sum(Memory.of(each.pid).proportional for each in scanners)
        if reaper.wait(timeout_s=90) != 0:
            raise RuntimeError(reaper.output)
        return Cost(total, memory, time.monotonic() - began)


def _port(process: Process) -> int:
    return int(yaml.safe_load(process.wait_line('"started"'))["port"])


def _print(name: str, build: Build, found: list[Cost]) -> None:
    scanners, reaper, seconds = (median(each) for each in zip(*found, strict=True))
    average = scanners + reaper * seconds / build.every_seconds
    print(
        f"{name:<8} {SCANNERS} scanners {scanners:5.1f} MB; reaper {reaper:4.1f} MB for {seconds:4.1f} s, "
        f"{DAY_SECONDS // build.every_seconds:5,} pods a day; average {average:5.1f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
