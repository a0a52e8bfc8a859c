"""delayq validate: check documents. delayq crd: print the CustomResourceDefinitions."""

from __future__ import annotations

import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from delayq.cli import guarded, views
from delayq.cli.app_check import schedule_checker, schedules_of_app
from delayq.cli.cron import note_uneven
from delayq.cli.exits import INVALID, CommandError
from delayq.cli.formats import iso
from delayq.cli.inputs import examples
from delayq.cli.output import Output, emit, note, output_option
from delayq.client.document import MAX_BYTES, InvalidFields, Wrong, parse_all, text_of
from delayq.contract import Problem, SpecError
from delayq.errors import InvalidDocument
from delayq.schedules.stored import in_words
from delayq.schedules.times import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.client.document import Documents
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule

CRDS = ("delayqueue.yaml", "delayschedule.yaml")
NOWHERE = "sqlite://"  # a guard that checks its statements and never connects


class Recurring(NamedTuple):
    """A valid schedule."""

    schedule: DelaySchedule
    next_ms: int | None


class Checked(NamedTuple):
    """What a file has."""

    problems: list[Wrong]
    schedules: list[Recurring]


@click.command(epilog=examples("delayq validate queue.yaml", "kubectl get dq -A -o yaml | delayq validate -"))
@click.argument("documents", metavar="FILE...", nargs=-1, required=True)
@output_option
def validate(documents: tuple[str, ...], *, output: Output) -> None:
    """Check documents, print every problem, and when schedules are due next. - reads from stdin.

    A FILE has DelayQueues, DelaySchedules or both, or is a List, as kubectl get -o yaml prints it.

    The command imports the App of a document, where it is beside it or on the path, and checks its schedules too. All
    FILEs must then be in one directory. It checks a guard's SQL only where SQLAlchemy is installed. delayq doctor
    checks tables and columns.
    """
    # Apps of two directories may have modules of one name.
    apps = len({Path(name).absolute().parent for name in documents}) == 1
    found = {name: check(name, apps=apps) for name in documents}
    value = [
        {
            "file": name,
            "valid": not each.problems,
            "problems": [views.problem(wrong) for wrong in each.problems],
            "schedules": [views.upcoming(*schedule) for schedule in each.schedules],
        }
        for name, each in found.items()
    ]
    emit(output, value, "\n".join(line for name, each in found.items() for line in _lines(name, each)))
    if any(each.problems for each in found.values()):
        sys.exit(INVALID)


def check(name: str, *, apps: bool) -> Checked:
    """Return what a file has; one problem without a path when it cannot be parsed. `apps`: import those it names."""
    try:
        found = parse_all(_stdin() if name == "-" else text_of(name), name)
    except InvalidDocument as error:
        return Checked(_wrong(name, error), [])
    problems = [Wrong("", problem) for each in found.queues for problem in _statements(each.queue)]
    if not apps and any((python := each.queue.spec.handler.python) and python.app for each in found.queues):
        note(
            f"note: {name}: an App is not imported, as the files are in several directories: validate each alone"
        )
    of_apps: list[tuple[str, DelaySchedule]] = []
    for each in found.queues if apps and name != "-" else ():
        try:
            of_apps += schedules_of_app(each)
        except InvalidDocument as error:
            problems += _wrong(name, error)
    names = {(each.spec.queue_ref.name, each.metadata.name) for _, each in found.schedules}
    problems += (
        Wrong(where, Problem("", "the file has a DelaySchedule of this name, too: rename one of them"))
        for where, each in of_apps
        if (each.spec.queue_ref.name, each.metadata.name) in names
    )
    valid: list[Recurring] = []
    for where, schedule in [*found.schedules, *of_apps]:
        try:
            valid.append(Recurring(schedule, _next_ms(schedule)))
        except SpecError as error:
            problems += (Wrong(_without(name, where), each) for each in error.problems)
        else:
            note_uneven(name, schedule)
    return Checked([*problems, *_queues(name, found)], valid)


def _wrong(name: str, error: InvalidDocument) -> list[Wrong]:
    """Return the problems of an error, without the name of the file."""
    if isinstance(error, InvalidFields):
        return [each._replace(where=_without(name, each.where)) for each in error.wrong]
    return [Wrong("", Problem("", _without(name, line))) for line in str(error).splitlines()]


def _next_ms(schedule: DelaySchedule) -> int | None:
    """Return when a schedule is due next, if at all; SpecError if its times are wrong."""
    calendar = checked(schedule)
    if schedule.spec.suspend:
        return None
    return next((each.due_ms for each in calendar.after(time.time_ns() // 1_000_000)), None)


def _queues(name: str, found: Documents) -> Iterator[Wrong]:
    """Check which queue each schedule names, in a file with queues, and that a handler takes its task."""
    if found.queues:
        try:
            by_queue = found.by_queue()
        except InvalidDocument as error:
            yield from _wrong(name, error)
        else:
            for each in found.queues:
                yield from _kinds(name, each.queue, by_queue[each.queue.metadata.name])


def _kinds(name: str, queue: DelayQueue, schedules: Sequence[tuple[str, DelaySchedule]]) -> Iterator[Wrong]:
    """Check the kinds of schedules, by the document, and by its App if that was imported."""
    check = schedule_checker(queue, None)
    for where, schedule in schedules:
        try:
            check(schedule)
        except SpecError as error:
            at = f"{_without(name, where)}, schedule {schedule.metadata.name}"
            yield from (Wrong(at, each) for each in error.problems)


def _without(name: str, line: str) -> str:
    """Return a line, or a place, without the name of the file; the number of its document stays."""
    return "" if line == name else line.removeprefix(f"{name}: ").removeprefix(f"{name}, ")


def _statements(document: DelayQueue) -> Iterator[Problem]:
    """Check the guard's SQL as a worker does. Without the guard's extra, check nothing."""
    spec = document.spec.guard
    if spec is None or spec.sql is None or spec.sql_unique is not None:
        return
    try:
        guarded.of_document(document, NOWHERE)
    except InvalidDocument as error:
        path, _, message = str(error).partition(": ")
        yield Problem(path, message)
    except CommandError:
        return


def _stdin() -> bytes:
    text = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidDocument(f"-: expected a document of at most {MAX_BYTES:,} bytes")
    return text


def _lines(name: str, found: Checked) -> Iterator[str]:
    for problem in found.problems:
        yield f"{name}: {problem}"
    if not found.problems:
        yield f"{name}: valid"
    for schedule, next_ms in found.schedules:
        due = "" if next_ms is None else f", next {iso(next_ms)}"
        yield f"{name}: schedule {schedule.metadata.name}: {in_words(schedule)}{due}"


@click.command()
def crd() -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    click.echo("---\n".join(map(crd_text, CRDS)), nl=False)


def crd_text(name: str) -> str:
    """Read a CRD from the installed package or from the source tree."""
    for folder in (files("delayq") / "crds", Path(__file__).parents[3] / "crds"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise CommandError(f"this installation has no {name}", "install delayq again", 1)
