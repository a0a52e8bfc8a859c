"""`make soak`: a day without work, then a day of steady work, in minutes, and what has grown by then.

Clocks of Redis and of all processes run a few hundred times as fast, monotonic ones too; nothing is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, once
from benchmarks.machine import here
from benchmarks.report import Report, add_options, say
from benchmarks.soak.stage import MINUTE, stage
from tests.servers import FLAVOURS, PREFERRED

if TYPE_CHECKING:
    from benchmarks.soak.stage import Look, Stage

MODES = ("idle", "steady load")
PER_MINUTE = 720  # 12 a second: a million in a day
WARM_HOURS = 2.4
RUSH_MINUTES = 10  # at once, so that Redis' tables are as large as a busy machine may make them later
PERCENT = 5.0  # the promise
# Of a key below, a counter's next digit is per cents; they are in the sum, and in the JSON.
SMALL_BYTES = 1024
# Hints, leadership, the claims' rate: there or not, and never more than a few bytes.
PASSING = frozenset({"wake", "alarm", "leader", "scanners", "rate"})


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    options = _options()
    against = f"Redis {options.redis}, clocks × {options.idle_factor} and × {options.factor}"
    report = Report(
        facts=here("delayq", "hiredis", "redis", "uvloop") | {"against": against},
        modes=MODES,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        name="soak",
    )
    print(report.heading(), flush=True)
    for mode, factor, per_minute in (
        (MODES[0], options.idle_factor, 0),
        (MODES[1], options.factor, options.per_minute),
    ):
        with (
            TemporaryDirectory(prefix="delayq-soak-") as directory,
            stage(Path(directory), options.redis, factor, per_minute) as staged,
        ):
            report.add(mode, _play(staged, options.hours, f"{mode}:"))
            report.extra[mode] = {
                "bytes_by_key": staged.keys,
                "resident_kib": staged.course,
                "said": dict(staged.said()),
                "failed": staged.failed(),
            }
    for letter in "ABC":
        print(report.lines(letter))
    return report.finish(keep=options.keep, strict=options.strict)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="of each (%(default)g)")
    parser.add_argument("--per-minute", type=int, default=PER_MINUTE, metavar="TASKS", help="(%(default)s)")
    parser.add_argument("--factor", type=int, default=240, help="of the clocks, under load (%(default)s)")
    parser.add_argument("--idle-factor", type=int, default=480, help="and without (%(default)s)")
    parser.add_argument("--redis", default=PREFERRED, choices=FLAVOURS, help="which server (%(default)s)")
    add_options(parser, "soak")
    return parser.parse_args()


def _play(staged: Stage, hours: float, what: str) -> list[Figure]:
    """Play some hours to warm up, rest, look; play the rest, rest, and look again."""
    staged.day.stock()
    staged.day.rush(RUSH_MINUTES * staged.day.per_minute)
    warm = min(WARM_HOURS, hours / 4)
    _hours(staged, warm, what)
    before = staged.look()
    _hours(staged, hours, what)
    return _figures(staged, before, staged.look())


def _hours(staged: Stage, hours: float, what: str) -> None:
    began = staged.pace.passed()
    for minute in range(int(hours * 60)):
        staged.until(began + minute * MINUTE)
        if staged.day.per_minute:
            staged.day.minute()
        if minute % 5 == 0:
            staged.scrape()
        if minute % 60 == 0:
            staged.note()
            say(f"{what} hour {minute // 60} of {hours:g}")
    staged.until(began + hours * 3600)
    staged.day.rest()
    staged.note()


def _figures(staged: Stage, before: Look, after: Look) -> list[Figure]:
    lasting = {name: size for name, size in after.keys.items() if name not in PASSING}
    growth = {name: _percent(before.keys.get(name, 0), size) for name, size in lasting.items()}
    worst = max((name for name in growth if lasting[name] > SMALL_BYTES), key=lambda name: growth[name])
    say(f"bytes by key: {before.keys} → {after.keys}; largest growth: {worst}; said: {dict(staged.said())}")
    stats = Counter(staged.day.client.counts().stats)
    found = [
        once("A", "time that passed between the looks", "h", after.hours - before.hours),
        once("A", "tasks scheduled, in all", "tasks", stats["scheduled"]),
        once("A", "  done", "tasks", stats["acked"]),
        once("A", "  retried, buried, cancelled, reclaimed", "tasks", sum(stats[name] for name in _OTHERS)),
        once("A", "commands to Redis between the looks", "", after.commands - before.commands),
        once("B", "keys before", "keys", before.number),
        once("B", "keys after", "keys", after.number),
        once("B", "MEMORY USAGE of all keys, before", "B", sum(before.keys.values())),
        once("B", "MEMORY USAGE of all keys, after", "B", sum(after.keys.values())),
        once("B", "  growth of the key that grew most", "%", growth[worst], most=PERCENT),
        once("B", "used_memory, growth", "%", _percent(before.used, after.used), most=PERCENT),
    ]
    for name, now in after.resident.items():
        found += [
            once("C", f"RSS of the {name}, after", "MiB", now / 1024),
            once("C", "  growth" + _of(name), "%", _percent(before.resident[name], now), most=PERCENT),
        ]
    return found


_OTHERS = ("retried", "buried", "cancelled", "reclaimed")


def _of(name: str) -> str:
    return f" of the {name}'s"


def _percent(before: int, after: int) -> float:
    return 100.0 * (after - before) / before if before else 100.0


if __name__ == "__main__":
    sys.exit(main())
