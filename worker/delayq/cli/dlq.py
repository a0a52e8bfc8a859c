"""delayq dlq: look at dead letters, run them again, keep a copy, forget them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import click

from delayq.cli import inputs, views
from delayq.cli.dead import choice_options, chosen
from delayq.cli.exits import FAILED, NOT_FOUND, Wrong, complain
from delayq.cli.on_queue import QUEUE_HELP, on_queue
from delayq.cli.output import Table, emit, note, one_line, output_option
from delayq.cli.task import described, listing, page_options
from delayq.cli.words import clean, length, seconds, tasks
from delayq.client.encoding import checked_id
from delayq.protocol.results import State

if TYPE_CHECKING:
    from delayq.cli.dead import Choice
    from delayq.cli.output import Output
    from delayq.client.blocking import SyncClient

LETTERS = "dead letter"
EXPORTED_AT_ONCE = 100


@click.group(help=f"Look at dead letters, run them again, keep a copy, forget them.\n\n{QUEUE_HELP}")
def dlq() -> None:
    """Hold the commands below."""


@dlq.command("list")
@on_queue
@page_options
@output_option
def list_(client: SyncClient, *, limit: int, offset: int, output: Output) -> None:
    """List dead letters, the oldest first."""
    rows = client.list(State.DLQ, offset=offset, limit=limit)
    emit(output, [views.row(each) for each in rows], listing(State.DLQ, rows, client.counts().now_ms))


@dlq.command()
@on_queue
@output_option
def groups(client: SyncClient, *, output: Output) -> None:
    """Group dead letters by error, the largest group first. Numbers and names in an error do not matter."""
    found = list(enumerate(client.dlq_groups(), 1))
    now_ms = client.counts().now_ms
    rows = [
        [
            str(number),
            f"{group.count:,}",
            length(max(0, now_ms - group.last_ms)),
            group.error.partition("\n")[0],
        ]
        for number, group in found
    ]
    emit(output, [views.group(*each) for each in found], Table([">GROUP", ">COUNT", "LAST", "ERROR"], rows))


@dlq.command()
@on_queue
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@output_option
def show(client: SyncClient, *, ids: tuple[str, ...], output: Output) -> None:
    """Show dead letters whole, with payload and last error."""
    wanted = [checked_id(task_id) for task_id in dict.fromkeys(ids)]
    found = client.dlq_get(wanted)
    now_ms = client.counts().now_ms
    if found or output != "table":
        emit(
            output,
            [views.whole(each) for each in found],
            "\n\n".join(described(each, now_ms) for each in found),
        )
    _exit_without(set(wanted) - {each.id for each in found})


@dlq.command()
@on_queue
@choice_options
@click.option("--rate", type=inputs.RATE, help="How many fall due in what time, like 50/s, 100/m or 1000/h.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@output_option
def redrive(client: SyncClient, *, choice: Choice, rate: float | None, dry_run: bool, output: Output) -> None:
    """Run dead letters again, with all attempts before them: those with these IDs, of a group, or all."""
    letters, missing = chosen(client, choice)
    done = client.dlq_redrive([*letters], rate_per_second=rate, dry_run=dry_run)
    value = {"count": done.tasks, "seconds": round(done.seconds, 3), "dry_run": dry_run}
    spread = seconds(done.seconds)
    said = (
        f"would redrive {tasks(done.tasks)} {spread}; nothing changed"
        if dry_run
        else f"redrove {tasks(done.tasks)}, due {spread}"
    )
    emit(output, value, said)
    _exit_without(missing)


@dlq.command()
@on_queue
@choice_options
@click.option(
    "--to",
    "file",
    type=click.File("w", encoding="utf-8", atomic=True),
    default="-",
    help="Where to write.  [default: stdout]",
)
def export(client: SyncClient, *, choice: Choice, file: TextIO) -> None:
    """Write dead letters as JSON, one a line: all, unless told which. schedule --many reads them back."""
    letters, missing = chosen(client, choice, every=True)
    ids, count = [*letters], 0
    for at in range(0, len(ids), EXPORTED_AT_ONCE):
        for letter in client.dlq_get(ids[at : at + EXPORTED_AT_ONCE]):
            click.echo(one_line(views.whole(letter)), file=file)
            count += 1
    note(f"exported {tasks(count, LETTERS)}")
    _exit_without(missing)


@dlq.command()
@on_queue
@choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def purge(client: SyncClient, *, choice: Choice, yes: bool, output: Output) -> None:
    """Forget dead letters for good: those with these IDs, of a group, or all."""
    letters, missing = chosen(client, choice)
    if letters and not yes:
        _ask(f"forget {tasks(len(letters), LETTERS)} of queue {client.queue} for good?")
    # One that was redriven since, and died again, is a new dead letter: it died after all that were listed.
    count = client.dlq_purge([*letters], before_ms=max(letters.values(), default=0) + 1)
    emit(output, {"count": count}, f"purged {tasks(count, LETTERS)}")
    _exit_without(missing)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise Wrong(f"{question} expected --yes, for nobody can be asked", "dlq export keeps a copy")
    if not click.confirm(clean(question), err=True):
        raise Wrong("nothing changed", code=FAILED)


def _exit_without(missing: set[str]) -> None:
    for task_id in sorted(missing):
        complain(f"no dead letter {task_id}")
    if missing:
        sys.exit(NOT_FOUND)
