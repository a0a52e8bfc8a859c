"""delayq dlq: inspect dead letters, run them again, export or purge them."""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from delayq.cli import inputs, listings, views
from delayq.cli.bulk import ALL_OF_KIND, NO_ID
from delayq.cli.exits import NOT_FOUND, CommandError, print_error
from delayq.cli.formats import length, seconds, tasks
from delayq.cli.inputs import examples
from delayq.cli.on_queue import QUEUE_HELP, on_queue
from delayq.cli.output import Table, dry_run_option, emit, note, one_line, output_option
from delayq.cli.task import described, kind_option, page_options, with_kind
from delayq.client.encoding import stored_id
from delayq.contract.problems import quote
from delayq.protocol.results import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient
    from delayq.client.blocking import SyncClient
    from delayq.protocol.results import DeadGroup

_NUMBER = re.compile("[1-9][0-9]{0,9}")


def on_letters(*, by_default: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ID..., --group, --kind, --all and --tag to a command.

    Its function receives `letters`: IDs with times of death. The command reports IDs that are not dead letters
    at the end. `by_default`: all dead letters without a choice.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def choosing(
            client: TargetClient,
            *,
            ids: tuple[str, ...],
            group: str | None,
            kind: str | None,
            every: bool,
            tag: str | None,
            **rest: Any,  # noqa: ANN401 -- the command's own options
        ) -> None:
            letters, missing = chosen(
                client, ids, group, kind, every=every, by_default=by_default or tag is not None
            )
            if tag is not None:
                tagged = {row.id for row in client.dlq_list(tag=tag)}
                letters = {task_id: died for task_id, died in letters.items() if task_id in tagged}
            command(client, letters=letters, **rest)
            _exit_without(client, missing)

        return inputs.options(
            click.argument("ids", metavar="[ID...]", nargs=-1),
            click.option(
                "--group",
                metavar="N",
                help="Dead letters of group N of delayq dlq groups, or all.",
            ),
            click.option(
                "--kind",
                metavar="KIND",
                help="Beside an ID: the task KIND:ID. Beside --all or --tag: only dead letters of this kind.",
            ),
            click.option("--all", "every", is_flag=True, help="All dead letters, or all of --kind."),
            click.option("--tag", metavar="TAG", help="Of these or of all, only dead letters with this tag."),
        )(choosing)

    return add


def chosen(
    client: SyncClient,
    ids: tuple[str, ...],
    group: str | None,
    kind: str | None,
    *,
    every: bool,
    by_default: bool,
) -> tuple[dict[str, int], set[str]]:
    """Return dead letters with their times of death, and the requested IDs that are not dead letters."""
    if bool(ids) + (group is not None) + every > 1 or (group is not None and kind is not None):
        raise CommandError("expected IDs, --group or --all, got several of them, or --group with --kind")
    if ids:
        wanted = _stored(ids, kind)
        dead = {view.id: view.at_ms for view in client.dlq_get(wanted)}
        return dead, set(wanted) - dead.keys()
    if group not in (None, "all"):
        return _of_group(client, str(group)), set()
    if not (every or group or by_default):
        if kind is not None:
            raise CommandError(NO_ID.format("an ID or --tag"), ALL_OF_KIND)
        raise CommandError(
            "which dead letters? expected ID..., --group N, --tag TAG or --all",
            "delayq dlq groups lists them",
        )
    return {row.id: row.at_ms for row in client.dlq_list(kind=kind)}, set()


def _stored(ids: tuple[str, ...], kind: str | None) -> list[str]:
    return [*dict.fromkeys(stored_id(task_id, kind) for task_id in ids)]


def _of_group(client: SyncClient, asked: str) -> dict[str, int]:
    """Return the dead letters of a group, and print its error: group numbers change when tasks die or are redriven."""
    if not _NUMBER.fullmatch(asked):
        raise CommandError(
            f"--group: expected a number from 1, or all, got {quote(asked)}", "delayq dlq groups lists them"
        )
    number, groups = int(asked), client.dlq_groups()
    if number > len(groups):
        raise CommandError(
            f"--group: expected a number up to {len(groups)}, got {number}", "delayq dlq groups", NOT_FOUND
        )
    group = groups[number - 1]
    note(f"group {number}: {_error(client, group).partition(chr(10))[0]}")
    return dict.fromkeys(group.ids, group.last_ms)


def _error(client: SyncClient, group: DeadGroup) -> str:
    """Return the error of a group; if it is empty, describe it by the reason of one of its dead letters."""
    letters = [] if group.error else client.dlq_get(group.ids[:1])
    return views.error(letters[0].failed) if letters else group.error


LETTERS = "dead letter"
EXPORTED_AT_ONCE = 100
MOST_HINTS = 3
"""Of the IDs that are not dead letters, which may be thousands: each one costs a call for each kind."""


@click.group(help=f"Inspect dead letters, run them again, export or purge them.\n\n{QUEUE_HELP}")
def dlq() -> None:
    """Group of the commands below."""


@dlq.command("list")
@on_queue
@page_options
@click.option("--kind", metavar="KIND", help="Only dead letters of this kind of task.")
@output_option
def list_(client: SyncClient, *, limit: int, offset: int, kind: str | None, output: Output) -> None:
    """List dead letters, the oldest first."""
    rows = client.list(State.DEAD, offset=offset, limit=limit, kind=kind)
    emit(output, [views.row(each) for each in rows], listings.table(rows, client.counts().now_ms, State.DEAD))


@dlq.command()
@on_queue
@click.option("--kind", metavar="KIND", help="Only groups of this kind of task; their numbers stay the same.")
@output_option
def groups(client: SyncClient, *, kind: str | None, output: Output) -> None:
    """Group dead letters by kind and error, the largest group first, ignoring numbers and names in errors."""
    found = [
        (number, group, _error(client, group))
        for number, group in enumerate(client.dlq_groups(), 1)
        if kind in (None, group.kind)
    ]
    now_ms = client.counts().now_ms
    kinds = any(group.kind for _, group, _ in found)
    rows = [
        [
            str(number),
            *([group.kind] if kinds else []),
            f"{group.count:,}",
            length(max(0, now_ms - group.last_ms)),
            error.partition("\n")[0],
        ]
        for number, group, error in found
    ]
    headings = [">GROUP", *(["KIND"] if kinds else []), ">COUNT", "LAST", "ERROR"]
    emit(output, [views.group(*each) for each in found], Table(headings, rows))


@dlq.command()
@on_queue
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@kind_option
@output_option
def get(client: TargetClient, *, ids: tuple[str, ...], kind: str | None, output: Output) -> None:
    """Show dead letters with payload and last error."""
    wanted = _stored(ids, kind)
    found = client.dlq_get(wanted)
    now_ms = client.counts().now_ms
    if found or output != "table":
        emit(
            output,
            [views.whole(each) for each in found],
            "\n\n".join(described(each, now_ms) for each in found),
        )
    _exit_without(client, set(wanted) - {each.id for each in found})


@dlq.command(epilog=examples("delayq dlq redrive orders --group 1 --rate 50/s"))
@on_queue
@on_letters()
@click.option("--rate", type=inputs.RATE, help="Rate at which they fall due, like 50/s, 100/m or 1000/h.")
@dry_run_option
@output_option
def redrive(
    client: SyncClient, *, letters: dict[str, int], rate: float | None, dry_run: bool, output: Output
) -> None:
    """Schedule dead letters again, with all their attempts: those with these IDs, of a group or kind, or all."""
    done = client.dlq_redrive([*letters], rate_per_second=rate, dry_run=dry_run)
    value = {"count": done.tasks, "seconds": round(done.seconds, 3), "dry_run": dry_run}
    spread = seconds(done.seconds)
    would = f"would redrive {tasks(done.tasks)} {spread}; nothing changed"
    emit(output, value, would if dry_run else f"redrove {tasks(done.tasks)}, due {spread}")


@dlq.command(epilog=examples("delayq dlq export orders --to letters.jsonl"))
@on_queue
@on_letters(by_default=True)
@click.option(
    "--to",
    "file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", atomic=True),
    default="-",
    help="File to write.  [default: stdout]",
)
def export(client: SyncClient, *, letters: dict[str, int], file: TextIO) -> None:
    """Write dead letters as JSON, one a line: by default, all. schedule --many can read the output."""
    ids, count = [*letters], 0
    for at in range(0, len(ids), EXPORTED_AT_ONCE):
        for letter in client.dlq_get(ids[at : at + EXPORTED_AT_ONCE]):
            click.echo(one_line(views.whole(letter)), file=file)
            count += 1
    note(f"exported {tasks(count, LETTERS)}")


@dlq.command()
@on_queue
@on_letters()
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@dry_run_option
@output_option
def purge(client: SyncClient, *, letters: dict[str, int], yes: bool, dry_run: bool, output: Output) -> None:
    """Delete dead letters: those with these IDs, of a group or kind, or all.

    They cannot be restored; export them first.
    """
    count, result = len(letters), f"would purge {tasks(len(letters), LETTERS)}; nothing changed"
    if not dry_run:
        if letters and not yes:
            question = f"delete {tasks(count, LETTERS)} of queue {client.queue}? They cannot be restored."
            inputs.confirm(question, "dlq export saves a copy")
        # One that was redriven since, and died again, is a new dead letter: it died after all that were listed.
        count = client.dlq_purge([*letters], before_ms=max(letters.values(), default=0) + 1)
        result = f"purged {tasks(count, LETTERS)}"
    emit(output, {"count": count, "dry_run": dry_run}, result)


def _exit_without(client: TargetClient, missing: set[str]) -> None:
    for nth, task_id in enumerate(sorted(missing)):
        hint = with_kind(client, task_id, state=State.DEAD) if nth < MOST_HINTS else ""
        print_error(f"no dead letter {task_id}", hint)
    if missing:
        sys.exit(NOT_FOUND)
