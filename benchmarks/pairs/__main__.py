"""`make bench-pairs BENCH_ARGS="--against COMMIT"`: ratios of this build to another commit, measured in alternation.

A round is: other, this, other again. this/other is the A/B ratio; other/other is the A/A ratio, whose spread is what
the machine alone makes of one build. Both use the libraries that are installed here, and one Redis.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

from benchmarks.pairs.measure import CASES, Figures
from benchmarks.resident.__main__ import export
from tests.servers import PREFERRED, RedisServer

ROOT = Path(__file__).parents[2]
LEAST = 0.97  # of the other build's speed, less the spread of A/A


def main() -> int:
    """Measure, print; exit 1 when a median ratio is below the bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="the other build (%(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of each case (%(default)s)")
    parser.add_argument("--only", default=",".join(CASES), metavar="CASE,…", help="some of: %(default)s")
    options = parser.parse_args()
    cases = [case for case in CASES if case in options.only]  # names have commas
    if not cases:
        parser.error(f"--only: expected some of {'; '.join(CASES)}, got {options.only}")
    slow = []
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder, "other")
        export(options.against, other)
        server = RedisServer.start(PREFERRED, dir=Path(folder, "redis"))
        try:
            for case in cases:
                found = _rounds(case, server.port, other, options.rounds)
                slow += [f"{case}, {figure}" for figure in found[0][0] if not _print(case, figure, found)]
        finally:
            server.stop()
    print("slower than allowed: " + "; ".join(slow) if slow else f"every median is within {LEAST} less A/A")
    return int(bool(slow))


def _rounds(case: str, port: int, other: Path, rounds: int) -> list[tuple[Figures, ...]]:
    for tree in (other, ROOT):  # compiles modules; not counted
        _once(case, port, tree)
    found = []
    for number in range(rounds):
        found.append(tuple(_once(case, port, tree) for tree in (other, ROOT, other)))
        print(f"\r{case}: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def _print(case: str, figure: str, found: list[tuple[Figures, ...]]) -> bool:
    """Print one line; return whether this build is fast enough."""
    pairs = [_speed(figure, this[figure], (first[figure] + last[figure]) / 2) for first, this, last in found]
    same = [_speed(figure, last[figure], first[figure]) for first, _, last in found]
    spread = _half_spread(same)
    passed = median(pairs) >= LEAST - spread
    print(
        f"{case:<26}{figure:<30}{median(this[figure] for _, this, _ in found):>11,.1f}"
        f"  A/B {median(pairs):.3f} ({min(pairs):.3f}–{max(pairs):.3f})"
        f"  A/A {median(same):.3f} ± {spread:.3f}{'' if passed else '  SLOWER'}",
        flush=True,
    )
    return passed


def _speed(figure: str, this: float, other: float) -> float:
    """Return how many times as fast, or as small, `this` is: above 1 is better."""
    return this / other if figure.endswith("/s") else other / this


def _half_spread(ratios: list[float]) -> float:
    """Half the distance between the quartiles."""
    if len(ratios) < 2:  # noqa: PLR2004 -- one ratio has no spread
        return 0.0
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return (high - low) / 2


def _once(case: str, port: int, tree: Path) -> Figures:
    path = f"{tree / 'worker'}:{ROOT}"
    env = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "benchmarks.pairs.measure", case, str(port)]
    made = subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    figures: Figures = json.loads(made.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    sys.exit(main())
