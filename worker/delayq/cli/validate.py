"""delayq validate: check documents. delayq crd: print the CustomResourceDefinitions."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from delayq.cli import guarded, views
from delayq.cli.app_check import schedule_checker
from delayq.cli.cron import note_uneven
from delayq.cli.exits import INVALID, CommandError
from delayq.cli.output import Output, emit, output_option
from delayq.client.document import MAX_BYTES, parse_all, text_of
from delayq.contract import Problem, SpecError
from delayq.errors import InvalidDocument
from delayq.schedules.times import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.client.document import Documents
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule

CRDS = ("delayqueue.yaml", "delayschedule.yaml")
NOWHERE = "sqlite://"  # a guard that checks its statements and never connects


@click.command()
@click.argument("documents", metavar="FILE...", nargs=-1, required=True)
@output_option
def validate(documents: tuple[str, ...], *, output: Output) -> None:
    """Check documents, and print every problem. - reads from stdin.

    A FILE has DelayQueues, DelaySchedules or both, or is a List, as kubectl get -o yaml prints it.

    The command checks a guard's SQL only where SQLAlchemy is installed. delayq doctor checks tables and columns.
    """
    found = {name: problems(name) for name in documents}
    value = [
        {"file": name, "valid": not wrong, "problems": [views.problem(each) for each in wrong]}
        for name, wrong in found.items()
    ]
    emit(output, value, "\n".join(line for name, wrong in found.items() for line in _lines(name, wrong)))
    if any(found.values()):
        sys.exit(INVALID)


def problems(name: str) -> list[Problem]:
    """Return the problems of a document; one problem without a path when it cannot be parsed."""
    try:
        found = parse_all(_stdin() if name == "-" else text_of(name), name)
    except InvalidDocument as error:
        if isinstance(error.__cause__, SpecError) and not str(error).startswith(f"{name}, "):
            return list(error.__cause__.problems)
        return [Problem("", _without(name, line)) for line in str(error).splitlines()]
    statements = [problem for each in found.queues for problem in _statements(each.queue)]
    return [*statements, *_schedules(name, found)]


def _schedules(name: str, found: Documents) -> Iterator[Problem]:
    """Check the expressions of schedules, and in a file with queues, which queue each names."""
    for where, schedule in found.schedules:
        try:
            checked(schedule)
        except SpecError as error:
            several = where != name
            yield from (
                Problem("", _without(name, f"{where}: {each}")) if several else each
                for each in error.problems
            )
        else:
            note_uneven(name, schedule)
    if found.queues:
        try:
            by_queue = found.by_queue()
        except InvalidDocument as error:
            yield Problem("", _without(name, str(error)))
        else:
            for each in found.queues:
                yield from _kinds(name, each.queue, by_queue[each.queue.metadata.name])


def _kinds(name: str, queue: DelayQueue, schedules: Sequence[tuple[str, DelaySchedule]]) -> Iterator[Problem]:
    """Check the kinds of schedules by the document alone: no App is imported."""
    check = schedule_checker(queue, None)
    for where, schedule in schedules:
        try:
            check(schedule)
        except SpecError as error:
            for each in error.problems:
                yield Problem("", _without(name, f"{where}: {schedule.metadata.name}: {each}"))


def _without(name: str, line: str) -> str:
    """Return a line without the name of the file; the number of its document stays."""
    return line.removeprefix(f"{name}: ").removeprefix(f"{name}, ")


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


def _lines(name: str, wrong: list[Problem]) -> list[str]:
    if not wrong:
        return [f"{name}: valid"]
    return [f"{name}: {problem}" if problem.path else f"{name}: {problem.message}" for problem in wrong]


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
