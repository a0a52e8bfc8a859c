"""`make bench-scale`: ten thousand, a million and ten million delayed tasks: memory, time of each call, restart."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import facts
from benchmarks.report import Report, add_options, say
from benchmarks.scale import disk, memory, move, sizing, verbs
from benchmarks.scale.stage import Stage
from tests.servers import FLAVOURS, PREFERRED, RedisServer

SIZES = "10000,1000000,1000000/8,10000000"
ROUNDS = 200  # of every call; p99 is the third slowest


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    options = _options()
    modes = tuple(_mode(tasks, shards) for tasks, shards in options.sizes)
    report = Report({}, modes, datetime.now(UTC).isoformat(timespec="seconds"), name="scale")
    report.ratios = "× of the first column"
    first: verbs.Timed | None = None
    for mode, (tasks, shards) in zip(modes, options.sizes, strict=True):
        with TemporaryDirectory(prefix="delayq-scale-") as directory:
            server = RedisServer.start(options.redis, dir=Path(directory))
            try:
                report.facts = report.facts or facts(server)
                staged = Stage(server, tasks, shards, say)
                timed = _measure(staged, report, mode, options.rounds)
                report.add(mode, move.moved(staged, Path(directory)))
            finally:
                server.kill()
        first = first or timed
        report.add(mode, verbs.figures(timed, first))
        _show(report)  # so far: the next column may take minutes, and more memory than there is
    code = report.finish(keep=options.keep, strict=options.strict)
    if options.keep:
        sizing.write()
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sizes", default=SIZES, metavar="TASKS[/SHARDS],…", help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of every call (%(default)s)")
    parser.add_argument("--redis", default=PREFERRED, choices=FLAVOURS, help="which server (%(default)s)")
    add_options(parser, "scale")
    options = parser.parse_args()
    pairs = [each.partition("/")[::2] for each in options.sizes.split(",")]
    options.sizes = [(int(tasks), int(shards or 1)) for tasks, shards in pairs]
    return options


def _mode(tasks: int, shards: int) -> str:
    return f"{tasks:,}" if shards == 1 else f"{tasks:,} in {shards}"


def _measure(stage: Stage, report: Report, mode: str, rounds: int) -> verbs.Timed:
    say(f"{mode}: larger payloads")
    larger = memory.large(stage) if stage.shards == 1 else []
    say(f"{mode}: storing")
    report.add(mode, memory.filled(stage) + larger)
    say(f"{mode}: every call, {rounds} times")
    timed = verbs.Timed(stage)
    timed.measure(rounds)
    say(f"{mode}: the file, and a restart")
    report.add(mode, disk.measured(stage))
    return timed


def _show(report: Report) -> None:
    print("\n".join([report.heading(), *map(report.lines, "ABCD")]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
