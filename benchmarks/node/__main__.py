"""`make bench-node`: a rush met from zero workers on a real kubelet, next to simulations of the same tasks.

Two rushes: the first, twice as large, teaches how long workers take when several start at once; the second is measured.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, once, percentile
from benchmarks.machine import here
from benchmarks.node import spike
from benchmarks.node.stage import stage
from benchmarks.report import Report, add_options, say

MODES = ("measured", "delayq simulated", "reactive simulated")


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node", description=__doc__)
    parser.add_argument("--tasks", type=int, default=spike.TASKS, help="how many (%(default)s)")
    add_options(parser, "node")
    options = parser.parse_args()
    report = Report(
        facts=here("delayq", "kopf", "hiredis", "redis", "uvloop") | {"against": "Kubernetes v1.36.3"},
        modes=MODES,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        name="node",
    )
    with TemporaryDirectory(prefix="delayq-bench-") as directory, stage(Path(directory), say) as world:
        print(report.heading())
        orders = spike.begin(world)
        say("a rush that teaches")
        spike.ride(orders, "rehearsal", 2 * options.tasks)
        say("the rush that is measured")
        rush = spike.ride(orders, "rush", options.tasks)
        forecasts = spike.simulated(orders, rush, Path(directory))
        report.add(MODES[0], _starts(rush))
        for mode, each in zip(MODES, [rush.measured, *forecasts], strict=True):
            report.add(mode, _course(each))
        world.account()
    for letter in "AB":
        print(report.lines(letter))
    print("", *rush.table(), sep="\n")
    return report.finish(keep=options.keep, strict=options.strict)


def _starts(rush: spike.Ride) -> list[Figure]:
    lives = [life for life in rush.diary.lives.values() if life.ready_at and life.claimed_at]
    ready = [(life.ready_at or 0) - rush.due_at for life in lives]
    claims = [(life.claimed_at or 0) - rush.asked.at for life in lives]
    return [
        once("A", "lead learnt before (p95)", "s", rush.lead_seconds),
        once("A", "a worker is asked for until it claims, p50", "s", percentile(claims, 50)),
        once("A", "the same, of the slowest", "s", max(claims)),
        once("A", "the last is Ready, from the due time", "s", max(ready), most=0),
    ]


def _course(each: spike.Forecast) -> list[Figure]:
    """What is measured has to keep the promise; what is simulated is there to be compared with."""
    p50, p99, most = each.late
    promised = spike.LATENESS if each.by == "measured" else None
    return [
        once("B", "the first worker is asked for, from the due time", "s", each.asked),
        once("B", "lateness p50", "s", p50),
        once("B", "lateness p99", "s", p99, most=promised),
        once("B", "lateness, largest", "s", most),
        once("B", "most workers", "", each.most_workers),
        once("B", "pod-hours, from zero to zero", "h", each.pod_hours),
    ]


if __name__ == "__main__":
    sys.exit(main())
