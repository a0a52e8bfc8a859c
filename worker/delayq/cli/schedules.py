"""delayq schedules: what a DelaySchedule will do."""

from __future__ import annotations

import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from delayq.cli import views
from delayq.cli.exits import INVALID, CommandError, errors_as_exits
from delayq.cli.formats import iso
from delayq.cli.inputs import INSTANT
from delayq.cli.output import Table, emit, output_option
from delayq.client.document import read_schedules
from delayq.contract import SpecError
from delayq.schedules.cron import GAP, SECOND_TIME
from delayq.schedules.times import Calendar

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.contract.schedule import DelaySchedule
    from delayq.schedules.times import Occurrence


@click.group()
def schedules() -> None:
    """Recurring tasks: documents of kind DelaySchedule."""


@schedules.command(name="next")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@click.option("--from", "from_ms", type=INSTANT, help="Start here.  [default: now]")
@output_option
def next_times(file: Path, count: int, from_ms: int | None, output: Output) -> None:
    """Print the next times of the schedules in FILE, and where a change of clocks moves one."""
    after_ms = time.time_ns() // 1_000_000 if from_ms is None else from_ms - 1
    with errors_as_exits():
        documents = read_schedules(file)
    found = [
        (each.metadata.name, occurrence, _local(each, occurrence))
        for each in documents
        for occurrence in islice(_calendar(file, each).after(after_ms), count)
    ]
    value = [
        views.occurrence(name, occurrence, local.isoformat(), _note(occurrence))
        for name, occurrence, local in found
    ]
    table = Table(
        ("SCHEDULE", "TIME", "LOCAL", "NOTE"),
        [
            (name, iso(occurrence.nominal.at_ms), f"{local:%a %Y-%m-%d %H:%M:%S %Z}", _note(occurrence))
            for name, occurrence, local in found
        ],
    )
    emit(output, value, table if found else "no further times")


def _calendar(file: Path, schedule: DelaySchedule) -> Calendar:
    try:
        return Calendar(schedule)
    except SpecError as error:
        raise CommandError(f"{file}: {schedule.metadata.name}: {error}", code=INVALID) from None


def _local(schedule: DelaySchedule, occurrence: Occurrence) -> datetime:
    zone = ZoneInfo(schedule.spec.time_zone or "UTC")
    return datetime.fromtimestamp(occurrence.nominal.at_ms / 1000, zone)


def _note(occurrence: Occurrence) -> str:
    nominal = occurrence.nominal
    notes = []
    if nominal.moved == GAP:
        notes.append(f"clocks go forward: there is no {nominal.wall:%H:%M}")
    if nominal.moved == SECOND_TIME:
        notes.append(f"clocks go back: the second {nominal.wall:%H:%M}")
    if occurrence.due_ms > nominal.at_ms:
        notes.append(f"due {(occurrence.due_ms - nominal.at_ms) / 1000:.1f} s later (jitter)")
    return ", ".join(notes)
