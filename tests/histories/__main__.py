"""Runs histories: `python -m tests.histories --seed S --seconds N [--redis valkey9] [--keep DIRECTORY]`.

A long run has parts of half a minute, each with a seed of its own, which the report names.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.histories.plan import Plan
from tests.histories.report import Report
from tests.histories.run import play, redis
from tests.servers import FLAVOURS, PREFERRED

PART_SECONDS = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--redis", choices=FLAVOURS, default=PREFERRED)
    parser.add_argument("--keep", type=Path, help="where the recordings of parts with violations stay")
    args = parser.parse_args()
    began, report, seed = time.monotonic(), Report(), args.seed
    while (left := args.seconds - (time.monotonic() - began)) > 1 or not report.histories:
        part = one(args.redis, seed, min(PART_SECONDS, max(5.0, left)), args.keep)
        report.add(part)
        print(f"· {time.monotonic() - began:.0f} s, seed {seed}: {part.summary()}", flush=True)
        seed += 1
    print(f"{time.monotonic() - began:.0f} s, seeds {args.seed} to {seed - 1}, Redis {args.redis}")
    print("\n".join(report.lines()))
    return int(not report.clean)


def one(flavour: str, seed: int, seconds: float, keep: Path | None) -> Report:
    """One part on a server of its own."""
    directory = Path(tempfile.mkdtemp(prefix="histories-"))
    try:
        with redis(directory, flavour) as server:
            part = play(Plan(seed, server.url), server, directory, seconds)
        if keep and not part.clean:
            shutil.copytree(directory, keep / f"seed-{seed}")
    finally:
        shutil.rmtree(directory)
    return part


if __name__ == "__main__":
    sys.exit(main())
