"""Where the tasks of a simulation come from: a file, or the name of a scenario. Options and reading."""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click
from delayq.cli.exits import INVALID, CommandError
from delayq.cli.formats import length
from delayq.cli.formats import tasks as counted
from delayq.cli.inputs import DURATION
from delayq.cli.output import note
from delayq.scaling.policy import HANDLER_SECONDS

from benchmarks.simulation import Tasks, TooMany, scenario, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.simulation import Arrival

LONGEST_LINE: Final = 10_000


class Workload(NamedTuple):
    """What there will be to do."""

    tasks: Tasks
    start: float | None
    """Unix seconds; None: the tasks have no date."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the options say."""

    trace: str | None
    scenario: str | None
    handler_ms: int | None
    until_ms: int
    seed: int

    @property
    def handler_seconds(self) -> float | None:
        """Handler time of tasks that say nothing of it."""
        return None if self.handler_ms is None else self.handler_ms / 1000


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a workload; the function gets a Source."""

    @functools.wraps(command)
    def sourced(
        *,
        trace: str | None,
        scenario: str | None,
        handler_ms: int | None,
        until: int,
        seed: int,
        **rest: Any,  # noqa: ANN401 -- the command's own
    ) -> None:
        source = Source(
            trace=trace,
            scenario=scenario,
            handler_ms=handler_ms,
            until_ms=until,
            seed=seed,
        )
        if trace is not None and scenario is not None:
            raise CommandError("expected one of --trace and --scenario, got both")
        command(source=source, **rest)

    for option in _OPTIONS:
        sourced = option(sourced)
    return sourced


_OPTIONS: Final = (
    click.option("--seed", type=int, default=0, show_default=True, help="For what a scenario draws by lot."),
    click.option(
        "--for",
        "until",
        type=DURATION,
        default="1d",
        show_default=True,
        help="Leave out tasks that fall due later than that.",
    ),
    click.option(
        "--handler-time",
        "handler_ms",
        type=DURATION,
        help="How long handlers take, unless the trace or scenario says so.  [default: 1s; scenarios: 500ms]",
    ),
    click.option("--scenario", metavar="TEXT", help=f"Make tasks up: {scenario.HELP}."),
    click.option(
        "--trace",
        metavar="FILE",
        help="Read tasks: CSV with a heading or a JSON object a line, with due, and maybe scheduled, handler_ms, "
        "count; due is ISO 8601, Unix ms, or seconds from the start like +12.5. - is stdin.",
    ),
)


def load(source: Source, notice_seconds: float) -> Workload:
    """Read or make the tasks. A trace with dates begins `notice_seconds` before its first task is due."""
    with _refusals():
        if source.trace is not None:
            found, start = _traced(source, source.trace, notice_seconds)
        else:
            found, start = _invented(source, source.scenario or _default()), None
        tasks = Tasks.of(found)
    kept = tasks.until(source.until_ms / 1000)
    _told_of_later(len(tasks) - len(kept), source)
    if not len(kept):
        raise CommandError(
            "expected tasks to simulate, found none that falls due in time", "--for, or --scenario"
        )
    return Workload(kept, start)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except trace.WrongLine as error:
        raise CommandError(str(error), "", INVALID) from None
    except TooMany as error:
        raise CommandError(str(error), "simulate a part of it, with the bounds scaled down alike") from None


def _default() -> str:
    note(f"note: made-up tasks: --scenario {scenario.DEFAULT}; --trace reads tasks from a file")
    return scenario.DEFAULT


def _invented(source: Source, text: str) -> list[Arrival]:
    seconds = scenario.HANDLER_SECONDS if source.handler_seconds is None else source.handler_seconds
    try:
        return scenario.scenario(text, handler_seconds=seconds, seed=source.seed)
    except TooMany:
        raise
    except ValueError as error:
        raise CommandError(f"--scenario: {error}") from None


def _traced(source: Source, name: str, notice_seconds: float) -> trace.Trace:
    seconds = HANDLER_SECONDS if source.handler_seconds is None else source.handler_seconds
    with _opened(name) as file:
        return trace.read(_lines(file, name), name, handler_seconds=seconds, notice_seconds=notice_seconds)


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file


def _lines(file: IO[bytes], name: str) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise trace.WrongLine(f"{name}:{number}: expected a line of less than {LONGEST_LINE:,} bytes")
        yield line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")


def _told_of_later(tasks: int, source: Source) -> None:
    if tasks:
        note(f"note: left out {counted(tasks)} due later than {length(source.until_ms)}; --for takes them in")
