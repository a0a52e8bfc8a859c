"""`make bench-operator`: many DelayQueues on a real API server; time, API writes, memory, restart.

No kubelet: pods are made and stay Pending, so nothing but the control plane competes for the processor.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from benchmarks.machine import here
from benchmarks.operator import phases
from benchmarks.operator.stage import stage
from benchmarks.report import Report, add_options, say

MODE = "one operator"


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator", description=__doc__)
    parser.add_argument("--queues", type=int, default=1000, help="how many (%(default)s)")
    parser.add_argument("--idle", type=float, default=120.0, metavar="SECONDS", help="(%(default)g)")
    add_options(parser, "operator")
    options = parser.parse_args()
    report = Report(
        facts=_facts(),
        modes=(MODE,),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        name="operator",
    )
    _measure(report, options)
    return report.finish(keep=options.keep, strict=options.strict)


def _facts() -> dict[str, object]:
    found = here("delayq", "kopf", "kubernetes", "aiohttp")
    return found | {"against": "Kubernetes v1.36.3"}


def _measure(report: Report, options: argparse.Namespace) -> None:
    with stage(say) as staged:
        print(report.heading())
        for letter, phase, amount in (
            ("A", phases.created, options.queues),
            ("B", phases.idle, options.idle),
            ("C", phases.edits, options.queues),
            ("D", phases.restarted, options.queues),
        ):
            report.add(MODE, phase(staged, amount, say))
            print(report.lines(letter), flush=True)


if __name__ == "__main__":
    sys.exit(main())
