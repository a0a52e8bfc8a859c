"""delayq cron: recurring tasks of a queue, and what a DelaySchedule will do."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from delayq.cli import views
from delayq.cli.app_check import imported, schedule_checker, schedules_of_app, unknown_kind_option
from delayq.cli.exits import INVALID, CommandError, errors_as_exits
from delayq.cli.formats import iso
from delayq.cli.inputs import DOCUMENT, INSTANT, examples, options
from delayq.cli.on_queue import QUEUE_HELP, on_queue
from delayq.cli.output import Table, dry_run_option, emit, note, output_option
from delayq.cli.target import UNKNOWN_KIND
from delayq.client.document import Document, parse_all, read_schedules, text_of
from delayq.contract import SpecError
from delayq.errors import NoSuchSchedule
from delayq.scaling.sentences import counted
from delayq.schedules.cron import GAP, SECOND_TIME
from delayq.schedules.record import CLIENT
from delayq.schedules.steps import uneven
from delayq.schedules.times import Calendar, checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.cli.app_check import ScheduleCheck
    from delayq.cli.output import Output
    from delayq.cli.target import Target, TargetClient
    from delayq.client.blocking import SyncClient
    from delayq.client.recurring import ScheduleChange
    from delayq.contract.schedule import DelaySchedule
    from delayq.schedules.stored import Schedule
    from delayq.schedules.times import Occurrence


@click.group(help=f"Recurring schedules: cron expressions, intervals, lists of times.\n\n{QUEUE_HELP}")
def cron() -> None:
    """Group of the commands below."""


FILE = click.argument("file", type=DOCUMENT)
NAME = click.argument("name", metavar="SCHEDULE")


@cron.command(epilog=examples("delayq cron apply orders nightly.yaml", "delayq cron apply queue.yaml"))
@on_queue
@click.argument("file", required=False, type=DOCUMENT)
@unknown_kind_option
@output_option
def apply(client: TargetClient, *, file: Path | None, unknown_kind: bool, output: Output) -> None:
    """Create or change the DelaySchedules of FILE; others remain.

    Without FILE: those of @app.schedule in the App of the document, which is imported. The ones that this App has
    stored before and has no more are deleted.

    A change removes the occurrences that were created ahead and have not started, and creates them anew.
    """
    if file is None:
        done = _apply_app(client.target)
    else:
        target = client.target
        check = schedule_checker(None if unknown_kind else target.document, target.path, UNKNOWN_KIND)
        documents = read_schedules(file)
        for each in documents:
            calendar(file, each, check)
        done = {each.metadata.name: client.apply_schedule(each) for each in documents}
    value = [views.change(name, change) for name, change in done.items()]
    emit(output, value, "\n".join(f"{name}: {change}" for name, change in done.items()) or "no schedules")


def _apply_app(target: Target) -> dict[str, ScheduleChange]:
    """Store the schedules of the document's App."""
    document, path = target.document, target.path
    python = document.spec.handler.python if document is not None else None
    if document is None or python is None or python.app is None or path is None:
        raise CommandError(
            f"queue {target.queue}: without FILE, expected the document of a queue whose handler is an App",
            "name the file of the DelaySchedules, or the document with spec.handler.python.app",
        )
    app = imported(python.app, Document(path, str(path), document)).bind_document(
        document, url=target.address
    )
    with closing(app):
        return app.apply_schedules_sync()


@cron.command()
@on_queue
@NAME
@click.option("--force", is_flag=True, help="Also one that belongs to a file, an App or Kubernetes.")
@output_option
def delete(client: SyncClient, *, name: str, force: bool, output: Output) -> None:
    """Delete a schedule, and its occurrences that have not started.

    With --force, remove it from the file, the code or Kubernetes first: else it is written again.
    """
    owners = {each.name: each.owner for each in client.schedules()} if force else {}
    done = client.delete_schedule(name, owner=owners.get(name, CLIENT))
    emit(output, views.change(name, done), f"{name}: {done}")


@cron.command("list")
@on_queue
@output_option
def list_(client: SyncClient, *, output: Output) -> None:
    """List the schedules of a queue, with their next times and last runs."""
    rows = [(each, _next_ms(each)) for each in client.schedules()]
    table = Table(
        ("SCHEDULE", "WHEN", "NEXT", "LAST", "LATE", "MISSED", "SKIPPED", "OWNER"),
        [
            (
                each.name,
                each.when,
                "" if next_ms is None else iso(next_ms),
                "" if each.record.last_began_ms is None else iso(each.record.last_began_ms),
                "" if each.last_run is None else f"{each.last_run.lateness.total_seconds():.1f} s",
                str(each.missed),
                str(each.skipped),
                each.owner,
            )
            for each, next_ms in rows
        ],
    )
    emit(output, [views.recurring(*row) for row in rows], table if rows else "no schedules")


@cron.command()
@on_queue
@NAME
@output_option
def run(client: SyncClient, *, name: str, output: Output) -> None:
    """Create an occurrence that is due now."""
    task_id = client.run_schedule(name)
    emit(output, {"id": task_id}, task_id)


@cron.command(
    epilog=examples(
        "delayq cron backfill orders nightly --from 2026-03-01T00:00:00Z --before 2026-03-04T00:00:00Z --dry-run"
    )
)
@on_queue
@NAME
@click.option("--from", "from_ms", type=INSTANT, required=True, help="First nominal time.")
@click.option("--before", "before_ms", type=INSTANT, required=True, help="Nominal times before this one.")
@dry_run_option
@output_option
def backfill(
    client: SyncClient, *, name: str, from_ms: int, before_ms: int, dry_run: bool, output: Output
) -> None:
    """Create the occurrences of a range in the past that do not exist, all due now.

    Those that ran and ended are created again. They run beside each other, also with concurrencyPolicy Forbid. Times
    that the scanner has still to create are left out.
    """
    done = client.backfill_schedule(name, since_ms=from_ms, before_ms=before_ms, dry_run=dry_run)
    value = {"ids": done.ids, "created": done.created, "dry_run": dry_run}
    created = f"{done.created} created, {len(done.ids) - done.created} exist" if not dry_run else "dry run"
    emit(output, value, "\n".join([*done.ids, f"{counted(len(done.ids), 'occurrence')}: {created}"]))


next_options = options(
    click.option(
        "-c",
        "--count",
        metavar="N",
        type=click.IntRange(1, 1000),
        default=10,
        show_default=True,
        help="How many.",
    ),
    click.option("--from", "from_ms", type=INSTANT, help="Start here.  [default: now]"),
    output_option,
)


@cron.command(name="next")
@on_queue
@click.argument("name", metavar="[SCHEDULE]", required=False)
@next_options
def next_times(
    client: SyncClient, *, name: str | None, count: int, from_ms: int | None, output: Output
) -> None:
    """Print the next times of the schedules of a queue, or of one, and where a change of clocks moves one."""
    found = [each for each in client.schedules() if name in {None, each.name}]
    if name is not None and not found:
        raise NoSuchSchedule(name)
    documents = [each.definition for each in found if each.definition is not None and not each.suspended]
    print_next("schedule", documents, count=count, from_ms=from_ms, output=output)


@cron.command()
@FILE
@next_options
def preview(file: Path, count: int, from_ms: int | None, output: Output) -> None:
    """Print what the next times of the DelaySchedules in FILE will be, and where a change of clocks moves one.

    Of a DelayQueue, also those of @app.schedule in its App, which is imported.
    """
    with errors_as_exits():
        documents = _of_file(file)
    print_next(file, documents, count=count, from_ms=from_ms, output=output)


def _of_file(file: Path) -> list[DelaySchedule]:
    """Return the DelaySchedules of a file, and those of the Apps of its DelayQueues; there is at least one."""
    found = parse_all(text_of(file), file)
    documents = [schedule for _, schedule in found.schedules]
    for each in found.queues:
        documents += (schedule for _, schedule in schedules_of_app(each))
    if not documents:
        raise CommandError(
            f"{file}: expected a DelaySchedule, or @app.schedule in the App of a DelayQueue, found neither",
            f"delayq cron next {file} prints the times of what is stored in the queue",
            INVALID,
        )
    return documents


def print_next(
    file: str | Path, documents: Sequence[DelaySchedule], *, count: int, from_ms: int | None, output: Output
) -> None:
    """Print the next times of schedules; `file` is where they come from, for errors."""
    after_ms = time.time_ns() // 1_000_000 if from_ms is None else from_ms - 1
    found = [
        (each.metadata.name, occurrence, _local(each, occurrence))
        for each in documents
        for occurrence in islice(calendar(file, each).after(after_ms), count)
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


def _next_ms(schedule: Schedule) -> int | None:
    found = schedule.next_times(1)
    return round(found[0].timestamp() * 1000) if found else None


def calendar(file: str | Path, schedule: DelaySchedule, check: ScheduleCheck | None = None) -> Calendar:
    """Return the times of a schedule of a file, and note uneven steps; exit with what is wrong with it.

    `check` raises SpecError for its task.
    """
    try:
        found = checked(schedule)
        if check is not None:
            check(schedule)
    except SpecError as error:
        raise CommandError(f"{file}: {schedule.metadata.name}: {error}", code=INVALID) from None
    note_uneven(file, schedule)
    return found


def note_uneven(file: str | Path, schedule: DelaySchedule) -> None:
    """Print a note for each step of the cron expression that does not divide its field."""
    for each in uneven(schedule.spec.cron or ""):
        note(f"note: {file}: {schedule.metadata.name}: spec.cron: {each}")


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
