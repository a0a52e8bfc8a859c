"""delayq task: inspect single tasks, cancel or reschedule them."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from delayq.cli import app_check, bulk, inputs, listings, views
from delayq.cli.exits import NOT_FOUND, REFUSED, CommandError, print_error
from delayq.cli.formats import iso, length, relative
from delayq.cli.inputs import examples
from delayq.cli.on_queue import QUEUE_HELP, on_queue
from delayq.cli.output import dry_run_option, emit, facts, note, one_line, output_option
from delayq.cli.schedule import when_options
from delayq.client.blocking import SyncClient
from delayq.client.encoding import MAX_ID_BYTES, stored_id
from delayq.protocol.keys import is_occurrence
from delayq.protocol.results import Cancelled, Selection, State

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts, TaskView

STATES = [state.value for state in views.INSTANT]
UNTOUCHED = {State.IN_FLIGHT: Cancelled.IN_FLIGHT, State.DEAD: Cancelled.DEAD}
DONE = {
    Cancelled.CANCELLED: "{verb} {id}",
    Cancelled.CANCELLING: "{verb} the run of {id}: its worker ends it within a third of the lease",
    Cancelled.FOLLOW_UP_CANCELLED: "{verb} the follow-up of {id}, which is in flight and continues",
}
WHY_NOT = {
    "in_flight": "is in flight",
    "dead": "is a dead letter: use delayq dlq redrive or delayq dlq purge",
    "not_found": "is not in the queue: it has ended, was cancelled or purged, or never existed",
}
NO_LIST = {
    "due": "due tasks are the first ones of scheduled and of retrying",
    State.DONE: "a finished task is deleted, and the history of spec.retention.finished has no list: "
    "delayq task get QUEUE ID shows a task of the history",
}
"""States that `task list` has no list for, and where to find their tasks."""
AHEAD = (
    "an occurrence is stored about ten minutes ahead of its time; delayq cron next QUEUE prints later ones"
)


@click.group(help=f"Inspect tasks, cancel or reschedule them.\n\n{QUEUE_HELP}")
def task() -> None:
    """Group of the commands below."""


kind_option = click.option("--kind", metavar="KIND", help="Kind of the task: ID means the task KIND:ID.")
page_options = inputs.options(
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, 100_000),
        default=100,
        show_default=True,
        help="Maximum number of tasks.",
    ),
    click.option(
        "--offset", metavar="N", type=click.IntRange(0, 1 << 40), default=0, help="Number of tasks to skip."
    ),
)


@task.command()
@on_queue
@click.argument("task_id", metavar="ID")
@kind_option
@output_option
def get(client: TargetClient, *, task_id: str, kind: str | None, output: Output) -> None:
    """Show one task with its payload, headers and failures."""
    stored = stored_id(task_id, kind)
    found = client.get(stored)
    if found is None:
        hint = AHEAD if is_occurrence(stored) else with_kind(client, stored)
        raise CommandError(f"task {stored} {WHY_NOT['not_found']}", hint, NOT_FOUND)
    emit(output, views.whole(found), described(found, client.counts().now_ms))


class StateChoice(click.Choice[str]):
    """A state in which tasks are listed; says where tasks of the other states are."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in NO_LIST:
            self.fail(NO_LIST[value], param, ctx)
        return super().convert(value, param, ctx)


@task.command(
    "list",
    epilog=examples(
        "delayq task list orders",
        "delayq task list orders --state retrying",
        "delayq task list orders --kind remind --due-before 2026-12-01T00:00:00Z",
    ),
)
@on_queue
@click.option("--state", type=StateChoice(STATES), help="Only tasks of this state.  [default: all]")
@bulk.selection_options
@page_options
@output_option
def list_(
    client: TargetClient,
    *,
    state: str | None,
    limit: int,
    offset: int,
    output: Output,
    **chosen: Any,  # noqa: ANN401 -- named in selection_options
) -> None:
    """List tasks: those in flight by lease expiry, those that wait by due time, then dead ones by time of death."""
    selected, one = Selection(**chosen), None if state is None else State(state)
    filtered = selected != Selection()
    counts = client.counts()
    if one is None:
        rows = listings.every_state(client, selected, counts, offset=offset, limit=limit)
    else:
        rows = client.list(one, offset=offset, limit=limit, **chosen)
    emit(output, [views.row(each) for each in rows], listings.table(rows, counts.now_ms, one))
    if said := _not_listed(counts, one, len(rows), offset, filtered=filtered):
        note(f"note: {said}")
    if not rows and not offset:
        bulk.note_unknown(client, chosen["kind"], 0)


def _not_listed(counts: Counts, state: State | None, shown: int, offset: int, *, filtered: bool) -> str:
    """Return which tasks of the queue a list does not have; empty if that is clear from its options."""
    if state is None and filtered:
        return ""
    if state is None:
        last, whole = offset + shown, listings.whole(counts)
        page = f"tasks {offset + 1:,} to {last:,} of {whole:,}: {listings.numbers(counts)}"
        return f"{page}; for the next page: --offset {last}" if shown and last < whole else ""
    if shown or offset:
        return ""
    listed = {state.value}
    if filtered and views.INSTANT[state] == "due":
        listed.add("due")  # these may be of the listed state, and the filter excludes them
    elsewhere = listings.numbers(counts, [*listed])
    return f"no such task with --state {state}; other states of the queue: {elsewhere}" if elsewhere else ""


@task.command()
@on_queue
@bulk.selection_options
@output_option
def count(client: TargetClient, *, output: Output, **chosen: Any) -> None:  # noqa: ANN401 -- named in selection_options
    """Count the tasks with a tag, a kind or a due time in a range.

    With --due-before, also occurrences of schedules until then that are stored later.
    """
    selected = Selection(**chosen)
    if selected == Selection():
        raise CommandError("expected --tag, --kind, --due-from or --due-before, got none of them")
    bulk.count(client, selected, output)


@task.command(
    epilog=examples(
        "delayq task cancel orders 7 --kind remind", "delayq task cancel orders --tag customer-12 --dry-run"
    )
)
@on_queue
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--running", is_flag=True, help="Cancel the run of a task in flight, too. With IDs only.")
@bulk.selection_options
@bulk.every_option
@bulk.yes_option
@dry_run_option
@output_option
def cancel(
    client: TargetClient,
    *,
    ids: tuple[str, ...],
    running: bool,
    yes: bool,
    dry_run: bool,
    output: Output,
    **chosen: Any,  # noqa: ANN401 -- named in selection_options
) -> None:
    """Delete tasks that are not in flight, and follow-ups: those with these IDs, or with a tag, kind or due time.

    The run of a task in flight continues, unless --running asks its worker to cancel it. For dead letters, use
    delayq dlq purge. With --kind, ID means the task KIND:ID; --kind alone needs --all.
    """
    if selected := bulk.changed(ids, **chosen):
        if running:
            raise CommandError("--running: expected the IDs of tasks, got a tag, a kind or a due time")
        return bulk.change(client, "cancel", selected, output, yes=yes, dry_run=dry_run)
    how = partial(_would_be if dry_run else SyncClient.cancel, running=running)
    stored = dict.fromkeys(stored_id(task_id, chosen["kind"]) for task_id in ids)
    outcomes = {task_id: how(client, task_id) for task_id in stored}
    done = [
        DONE[outcome].format(verb="would cancel" if dry_run else "cancelled", id=task_id)
        for task_id, outcome in outcomes.items()
        if outcome in DONE
    ]
    value = [{"id": task_id, "outcome": outcome.value} for task_id, outcome in outcomes.items()]
    if done or output != "table":
        emit(output, value, "\n".join(done))
    return _exit_when_not(client, outcomes, in_flight="--running cancels its run, too")


def with_kind(client: TargetClient, task_id: str, *, state: State | None = None) -> str:
    """Return a hint at the tasks of this ID that have a kind of the document, in one state if it is given."""
    ids = [f"{kind}:{task_id}" for kind in ([] if ":" in task_id else app_check.kinds(client.target))]
    fitting = {each: client.get(each) for each in ids if len(each.encode()) <= MAX_ID_BYTES}
    there = [each for each, found in fitting.items() if found and state in (None, found.state)]
    return f"did you mean {' or '.join(there)}? The ID of a task with a kind is KIND:ID" if there else ""


def _would_be(client: TargetClient, task_id: str, *, running: bool) -> Cancelled:
    """Return the outcome that cancelling a task would have now."""
    found = client.get(task_id)
    if found is None or found.state is State.DONE:
        return Cancelled.NOT_FOUND
    if found.state is State.IN_FLIGHT and running:
        return Cancelled.CANCELLING
    if found.state is State.IN_FLIGHT and found.follow_up_due_ms is not None:
        return Cancelled.FOLLOW_UP_CANCELLED
    return UNTOUCHED.get(found.state, Cancelled.CANCELLED)


@task.command(
    epilog=examples(
        "delayq task reschedule orders 7 --kind remind --in 1h",
        "delayq task reschedule orders --tag customer-12 --later 1d",
    )
)
@on_queue
@click.argument("task_id", metavar="[ID]", required=False)
@when_options
@click.option(
    "--later", "later_ms", type=inputs.DURATION, help="With --tag and others: how much later, like 1h."
)
@click.option(
    "--earlier", "earlier_ms", type=inputs.DURATION, help="With --tag and others: how much earlier."
)
@bulk.selection_options
@bulk.every_option
@bulk.yes_option
@dry_run_option
@output_option
def reschedule(  # noqa: PLR0913 -- one parameter an option
    client: TargetClient,
    *,
    task_id: str | None,
    delay_ms: int | None,
    due_ms: int | None,
    later_ms: int | None,
    earlier_ms: int | None,
    yes: bool,
    dry_run: bool,
    output: Output,
    **chosen: Any,  # noqa: ANN401 -- named in selection_options
) -> None:
    """Change the due time of a task that is not running, or of all tasks with a tag, kind or due time.

    With --kind, ID means the task KIND:ID; --kind alone needs --all.
    """
    selected = bulk.changed(() if task_id is None else (task_id,), **chosen)
    times = {"--in": delay_ms, "--at": due_ms, "--later": later_ms, "--earlier": earlier_ms}
    given = [name for name, value in times.items() if value is not None]
    if len(given) > 1:
        raise CommandError(f"{' and '.join(given)}: expected one of them, got {len(given)}")
    if selected:
        if not given:
            raise CommandError("expected --in, --at, --later or --earlier, got none of them")
        if later_ms is not None or earlier_ms is not None:
            when = {"shift_ms": (later_ms or 0) - (earlier_ms or 0)}
        else:
            when = {"due_ms": client.counts().now_ms + (delay_ms or 0) if due_ms is None else due_ms}
        return bulk.change(client, "reschedule", selected, output, yes=yes, dry_run=dry_run, **when)
    if task_id is None or (delay_ms is None and due_ms is None):
        raise CommandError("expected --in or --at, got neither", "--in 0s makes it due now")
    if dry_run:
        raise CommandError("--dry-run: expected --tag, --kind, --due-from or --due-before, got an ID")
    stored = stored_id(task_id, chosen["kind"])
    moved = client.reschedule(stored, delay_ms=delay_ms, due_ms=due_ms)
    done = moved.outcome == "rescheduled"
    value = {"id": stored, "outcome": moved.outcome, **views.instant("due", moved.due_ms if done else None)}
    if done or output != "table":
        emit(output, value, f"rescheduled {stored}, due {iso(moved.due_ms)}")
    return _exit_when_not(
        client, {stored: moved.outcome}, in_flight="a running task has no due time to change"
    )


def _exit_when_not(
    client: TargetClient, outcomes: dict[str, Cancelled] | dict[str, str], *, in_flight: str
) -> None:
    """Print why each task was not changed; `in_flight` is a hint. NOT_FOUND takes precedence over REFUSED."""
    refused = {task_id: str(outcome) for task_id, outcome in outcomes.items() if str(outcome) in WHY_NOT}
    for task_id, outcome in refused.items():
        hint = with_kind(client, task_id) if outcome == "not_found" else ""
        hint = in_flight if outcome == "in_flight" else hint
        print_error(f"task {task_id} {WHY_NOT[outcome]}", hint)
    if refused:
        sys.exit(NOT_FOUND if "not_found" in refused.values() else REFUSED)


def described(found: TaskView, now_ms: int) -> str:
    """Format one task; instants are relative to Redis' now."""
    value = views.whole(found)
    shown = {
        name: text for name, text in value.items() if not name.endswith("_ms") and text not in ("", {}, None)
    }
    if found.late_ms is not None:
        shown["late"] = length(found.late_ms)
    for name in (*listings.HEADINGS, "finished", "scheduled", "expires"):
        if name in shown:
            shown[name] = f"{shown[name]} ({relative(value[f'{name}_ms'], now_ms)})"
    return facts((name, text if isinstance(text, str) else one_line(text)) for name, text in shown.items())
