"""Scheduling from a file, batch after batch: it may be larger than memory. What is refused is told by line."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import REFUSED, complain
from delayq.cli.inputs import MAX_BYTES
from delayq.cli.lines import new_task
from delayq.cli.output import emit, note
from delayq.cli.words import tasks
from delayq.errors import NotAcknowledged, TasksRefused, Unavailable
from delayq.protocol.results import Outcome, Scheduled
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from delayq.cli.output import Output
    from delayq.client.blocking import SyncClient
    from delayq.client.encoding import NewTask
    from delayq.client.enqueue import IfExists

FILE_LINES, FILE_BYTES = 5000, 16 << 20  # of a file, given to schedule_many at a time
AGAIN = (
    "note: with ids in the file, the same command with --if-exists keep stores what is missing and leaves tasks that "
    "wait or run as they are; a task that was done meanwhile is stored anew and runs again"
)
SHOWN = 20  # refused lines told one by one; the rest are counted


@dataclass
class Progress:
    """What a file has come to so far."""

    name: str
    stored: int = 0
    kept: int = 0
    reached: bool = False  # Redis answered once
    number: int = 0  # of the line read last
    count: int = 0  # of the refused
    refused: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, line: int, message: str) -> None:
        """Note that a line was not stored; the others are."""
        self.count += 1
        if self.count <= SHOWN:
            self.refused.append((line, message))
            click.echo(f"error: {self.name} line {line:,}: {safe(message)}", err=True)

    def tell(self) -> None:
        """Show how far it is, on a terminal."""
        if sys.stderr.isatty():
            click.echo(f"\r{tasks(self.stored)} scheduled", nl=False, err=True)


def schedule(client: SyncClient, file: BinaryIO, *, if_exists: IfExists, output: Output) -> None:
    """Store the tasks of a file and say what became of them."""
    progress = Progress(getattr(file, "name", "-"))
    for numbers, batch in _batches(file, progress):
        if not progress.reached:
            client.counts()  # a Redis that cannot be reached is told before anything was sent
            progress.reached = True
        try:
            _store(client, numbers, batch, if_exists=if_exists, progress=progress)
        except (NotAcknowledged, Unavailable) as error:
            done = numbers[0] - 1
            what = "are stored" if isinstance(error, NotAcknowledged) else "may be stored"
            note(f"note: lines up to {done:,} are done; of lines {done + 1:,} to {numbers[-1]:,} some {what}")
            note(AGAIN)
            raise
        progress.tell()
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    _report(progress, output)


def _store(
    client: SyncClient, numbers: list[int], batch: list[NewTask], *, if_exists: IfExists, progress: Progress
) -> None:
    try:
        scheduled = client.schedule_many(batch, if_exists=if_exists)
    except TasksRefused as some:
        for at, error in some.refused.items():
            progress.refuse(numbers[at], str(error))
        scheduled = [each for each in some.scheduled if isinstance(each, Scheduled)]
    kept = sum(each.outcome is Outcome.KEPT for each in scheduled)
    progress.kept += kept
    progress.stored += len(scheduled) - kept


def _batches(file: BinaryIO, progress: Progress) -> Iterator[tuple[list[int], list[NewTask]]]:
    numbers: list[int] = []
    batch: list[NewTask] = []
    size = 0
    for line in _lines(file, progress):
        try:
            batch.append(new_task(line))
        except ValueError as error:
            progress.refuse(progress.number, str(error))
            continue
        numbers.append(progress.number)
        size += len(line)
        if len(batch) == FILE_LINES or size > FILE_BYTES:
            yield numbers, batch
            numbers, batch, size = [], [], 0
    if batch:
        yield numbers, batch


def _lines(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    """Yield lines that are not blank; one that is too long is refused and passed over piece by piece."""
    while line := file.readline(MAX_BYTES):
        progress.number += 1
        if len(line) == MAX_BYTES and not line.endswith(b"\n"):
            progress.refuse(progress.number, f"expected at most {MAX_BYTES:,} bytes, got more")
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_BYTES)
        elif line.strip():
            yield line


def _report(progress: Progress, output: Output) -> None:
    value = {
        "scheduled": progress.stored,
        "kept": progress.kept,
        "refused": [{"line": line, "message": message} for line, message in progress.refused],
        "count": progress.stored + progress.kept + progress.count,
    }
    kept = f", kept {progress.kept:,}" if progress.kept else ""
    refused = f", refused {progress.count:,}" if progress.count else ""
    emit(output, value, f"scheduled {tasks(progress.stored)}{kept}{refused}")
    if progress.count > SHOWN:
        complain(f"{progress.count - SHOWN:,} more lines were refused")
    if progress.count:
        sys.exit(REFUSED)
