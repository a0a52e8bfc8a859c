"""Runs the benchmarks one after the other, each with persistence off and on, and reports as it goes."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import ceiling, drain, idle, instant, lateness, machine, memory, poisoned, schedule
from benchmarks.report import Report
from benchmarks.stage import Stage
from tests.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.figures import Figure

MODES = {
    "off": False,
    "everysec": True,
}  # appendonly; everysec is Redis' default, and the one delayq asks for


class Benchmark(NamedTuple):
    """One letter."""

    run: Callable[[Stage], Awaitable[list[Figure]]]
    waits: bool = False  # hardly uses the machine, so both modes may be measured at the same time


BENCHMARKS = {
    "A": Benchmark(schedule.run),
    "B": Benchmark(drain.run),
    "C": Benchmark(lateness.run),
    "D": Benchmark(instant.run),
    "E": Benchmark(memory.run),
    "F": Benchmark(idle.run, waits=True),
    "G": Benchmark(poisoned.after_killed, waits=True),
}


@dataclass(frozen=True)
class Order:
    """What was asked for on the command line."""

    letters: tuple[str, ...]
    flavour: str
    modes: tuple[str, ...]
    quick: bool
    keep: bool


async def run(order: Order) -> Report:
    """Measure the ceiling, then everything asked for; Redis servers and files go when it is over."""
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as scratch,
        _servers(order, Path(scratch)) as servers,
    ):
        started = datetime.now(UTC).isoformat(timespec="seconds")
        report = Report(machine.facts(next(iter(servers.values()))), order.modes, started)
        print(report.heading(), flush=True)
        stages = []
        for mode, server in servers.items():
            found = await ceiling.measure(server, quick=order.quick)
            report.add(mode, found.figures())
            stages.append(Stage(server, mode, found, order.quick, Path(scratch) / f"stage-{mode}"))
        print(report.lines("0"), flush=True)
        for letter in order.letters:
            await _measure(letter, stages, report)
    return report


@contextmanager
def _servers(order: Order, scratch: Path) -> Iterator[dict[str, RedisServer]]:
    with ExitStack() as stack:
        servers = {}
        for mode in order.modes:
            directory = scratch / f"redis-{mode}"
            servers[mode] = RedisServer.start(order.flavour, dir=directory, appendonly=MODES[mode])
            stack.callback(servers[mode].kill)  # nothing in it is worth a last save
            (scratch / f"stage-{mode}").mkdir()
        yield servers


async def _measure(letter: str, stages: list[Stage], report: Report) -> None:
    benchmark, began = BENCHMARKS[letter], time.monotonic()
    if benchmark.waits:
        found = await asyncio.gather(*(benchmark.run(stage) for stage in stages))
    else:
        found = [await benchmark.run(stage) for stage in stages]
    for stage, figures in zip(stages, found, strict=True):
        report.add(stage.mode, figures)
        stage.empty()
    print(f"{report.lines(letter)}\n{'':>3}({time.monotonic() - began:.0f} s)", flush=True)
