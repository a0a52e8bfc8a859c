"""`make bench-shards`: the same queue with 1, 2, 4 and 8 shards, on one Redis and on a Cluster of three primaries."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, once
from benchmarks.machine import facts
from benchmarks.report import Report, add_options, say
from benchmarks.shards.phases import WORKERS, handled, punctual, stored
from benchmarks.shards.stage import Stage
from tests.servers import FLAVOURS, PREFERRED, RedisServer
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("standalone", "cluster")
NUMBERS = "1,2,4,8"


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    options = _options()
    with TemporaryDirectory(prefix="delayq-shards-") as name, ExitStack() as stack:
        places = {mode: stack.enter_context(_place(mode, options.redis, Path(name))) for mode in options.only}
        report = Report(
            facts(next(iter(places.values()))[1][0]),
            tuple(places),
            datetime.now(UTC).isoformat(timespec="seconds"),
            name="shards",
        )
        report.ratios = "× of one shard"
        firsts: dict[tuple[str, str], float] = {}
        for shards in options.numbers:
            for mode, (url, servers) in places.items():
                stage = Stage(mode, url, servers, shards, Path(name), 1 if options.quick else 3)
                say(f"{mode}, {shards} shards")
                report.add(mode, [_against(firsts, mode, each) for each in _measured(stage)])
    print(report.heading())
    for letter in "ABCD":
        print(report.lines(letter))
    return report.finish(keep=options.keep, strict=options.strict)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=__doc__)
    parser.add_argument("--shards", default=NUMBERS, metavar="1,2,…", help="how many (%(default)s)")
    parser.add_argument("--only", default=",".join(MODES), help="some of %(default)s")
    parser.add_argument("--redis", default=PREFERRED, choices=FLAVOURS, help="which server (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run of each: for a look, not a quote")
    add_options(parser, "shards")
    options = parser.parse_args()
    options.numbers = [int(each) for each in options.shards.split(",")]
    options.only = options.only.split(",")
    return options


@contextmanager
def _place(mode: str, flavour: str, directory: Path) -> Iterator[tuple[str, list[RedisServer]]]:
    """Start it; without replicas, which would take processor time from what is measured."""
    if mode == "cluster":
        cluster = Cluster.start(flavour, dir=directory / "cluster", replicas=False)
        try:
            yield cluster.url, cluster.all()
        finally:
            cluster.stop()
    else:
        server = RedisServer.start(flavour, dir=directory / "standalone")
        try:
            yield server.url, [server]
        finally:
            server.kill()


def _measured(stage: Stage) -> list[Figure]:
    in_shards = f"{stage.shards} shard{'s' if stage.shards > 1 else ''}"
    store, handle, late = stored(stage), handled(stage), punctual(stage)
    return [
        once("A", f"schedule_many, {in_shards}", "tasks/s", store.per_second),
        once("B", f"handled by {WORKERS} workers, {in_shards}", "tasks/s", handle.per_second),
        once("B", f"  CPU of the workers, {in_shards}", "µs/task", handle.workers_us),
        once("B", f"  CPU of Redis, {in_shards}", "µs/task", handle.redis_us),
        once("B", f"  of that, the busiest server, {in_shards}", "µs/task", handle.busiest_us),
        once("B", f"  what that one's core would bear, {in_shards}", "tasks/s", 1e6 / handle.busiest_us),
        once("C", f"lateness p50, {in_shards}", "ms", late.p50_ms),
        once("C", f"lateness p99, {in_shards}", "ms", late.p99_ms),
        once("C", f"  early, {in_shards}", "tasks", late.early, most=0),
        once("D", f"connections of a worker, {in_shards}", "", late.connections),
    ]


def _against(firsts: dict[tuple[str, str], float], mode: str, figure: Figure) -> Figure:
    """Make it a multiple of the same topology's first."""
    name = figure.name.partition(",")[0] + figure.unit
    first = firsts.setdefault((mode, name), figure.value)
    return figure if figure.target else replace(figure, base=first, base_name="one shard")


if __name__ == "__main__":
    sys.exit(main())
