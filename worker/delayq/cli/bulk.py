"""Count, cancel or reschedule tasks by tag, kind and due time: the options --tag, --kind, --due-from, --due-before."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from delayq.cli import inputs, unstored
from delayq.cli.app_check import kinds
from delayq.cli.exits import CommandError
from delayq.cli.formats import iso, length, tasks
from delayq.cli.output import emit, note
from delayq.client.blocking import SyncClient
from delayq.protocol.results import Bulk, Selection

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient

VERBS = {
    "cancel": (SyncClient.cancel_many, "cancelled"),
    "reschedule": (SyncClient.reschedule_many, "rescheduled"),
}
"""Verb → the client's method, and the verb in the past."""

LEFT_ALONE = {
    "in_flight": "in flight",
    "dead": "dead",
    "too_far": "beyond limits.maxDelaySeconds",
}

NO_ID = "--kind: expected {} beside it, got none: is a variable unset?"
ALL_OF_KIND = "--all means all of the kind"

tag_option = click.option("--tag", metavar="TAG", help="Only tasks with this tag.")
selection_options = inputs.options(
    tag_option,
    click.option("--kind", metavar="KIND", help="Only tasks of this kind."),
    click.option(
        "--due-from", "due_from_ms", type=inputs.INSTANT, help="Only tasks due at this time or later."
    ),
    click.option(
        "--due-before", "due_before_ms", type=inputs.INSTANT, help="Only tasks due before this time."
    ),
)
every_option = click.option("--all", "every", is_flag=True, help="With --kind alone: all tasks of this kind.")
yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation of --tag, --kind and --due-….")


def changed(ids: tuple[str, ...], *, every: bool, **fields: Any) -> Selection | None:  # noqa: ANN401 -- as below
    """Return the selection of tasks to change: a kind alone only with --all, as the variable of an ID may be unset."""
    chosen = selection(ids, **fields)
    alone = chosen is not None and chosen == Selection(kind=chosen.kind)
    if every and not alone:
        raise CommandError("--all: expected --kind alone, got IDs or other options")
    if alone and not every:
        raise CommandError(NO_ID.format("an ID, --tag, --due-from or --due-before"), ALL_OF_KIND)
    return chosen


def selection(ids: tuple[str, ...], **fields: Any) -> Selection | None:  # noqa: ANN401 -- named in selection_options
    """Return which tasks the options select; None when the command names IDs instead, maybe with their --kind."""
    chosen = Selection(**fields)
    given = any(each is not None for each in (chosen._replace(kind=None) if ids else chosen))
    if given == bool(ids):
        got = "both" if ids else "neither"
        raise CommandError(f"expected IDs, or --tag, --kind, --due-from or --due-before, got {got}")
    return chosen if given else None


def count(client: TargetClient, chosen: Selection, output: Output) -> None:
    """Print how many tasks are selected, and occurrences of schedules up to a time that are stored later."""
    found, until_ms = client.count_many(**chosen._asdict()), chosen.due_before_ms
    extra, value = None, found._asdict()
    if until_ms is not None:  # a schedule may have occurrences without end
        extra = unstored.unstored(client, client.counts().now_ms, until_ms, chosen)
        value |= unstored.view(extra)
    more = unstored.text(extra)
    text = (
        f"{tasks(found.tasks)} wait{_follow_ups(found)}{_left_alone(found)}{f', and {more}' if more else ''}"
    )
    emit(output, value, text)
    for each in unstored.notes(extra):
        note(each)
    note_unknown(client, chosen.kind, found.tasks)


def change(
    client: TargetClient,
    verb: str,
    chosen: Selection,
    output: Output,
    *,
    yes: bool,
    dry_run: bool,
    **when: Any,  # noqa: ANN401 -- due_ms or shift_ms
) -> None:
    """Cancel or reschedule the selected tasks."""
    call, done = VERBS[verb]
    to = f", due {iso(when['due_ms'])}" if "due_ms" in when else f" by {_signed(**when)}" if when else ""
    found = client.count_many(**chosen._asdict())
    whole = found.tasks + found.follow_ups
    if not dry_run:
        if whole and not yes:
            inputs.confirm(
                f"{verb} {tasks(whole)} of queue {client.queue}{to}?", "--dry-run counts the tasks"
            )

        def show(so_far: Bulk) -> None:
            if sys.stderr.isatty():
                click.echo(f"\r{done} {so_far.tasks:,} of about {tasks(whole)}", nl=False, err=True)

        found = call(client, **chosen._asdict(), **when, progress=show)
        if sys.stderr.isatty():
            click.echo("\r", nl=False, err=True)
    text = f"would {verb}" if dry_run else done
    end = "; nothing changed" if dry_run else ""
    value = {**found._asdict(), "dry_run": dry_run}
    emit(output, value, f"{text} {tasks(found.tasks)}{_follow_ups(found)}{to}{_left_alone(found)}{end}")
    note_unknown(client, chosen.kind, whole)


def note_unknown(client: TargetClient, kind: str | None, whole: int) -> None:
    """Note a kind that has no task and that the document does not name, if it names one like it."""
    if not whole and kind is not None and kind not in (names := kinds(client.target)):
        for similar in get_close_matches(kind, names, 1):
            note(f"note: the document has no kind {kind}: did you mean {similar}?")


def _follow_ups(found: Bulk) -> str:
    return f" and {tasks(found.follow_ups, 'follow-up')}" if found.follow_ups else ""


def _left_alone(found: Bulk) -> str:
    numbers = [
        f"{getattr(found, name):,} {what}" for name, what in LEFT_ALONE.items() if getattr(found, name)
    ]
    return f" (left alone: {', '.join(numbers)})" if numbers else ""


def _signed(shift_ms: int) -> str:
    return f"{length(abs(shift_ms))} {'earlier' if shift_ms < 0 else 'later'}"
