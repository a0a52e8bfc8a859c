"""delayq status: how many tasks are in each state, once or repeatedly."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import UNAVAILABLE
from delayq.cli.formats import length, relative, tasks
from delayq.cli.inputs import DURATION, examples
from delayq.cli.on_queue import on_queue
from delayq.cli.output import Table, emit, emit_next, note, output_option
from delayq.cli.refused import refused_sentence
from delayq.cli.snapshot import take_snapshot
from delayq.cli.suspension import WORKERS, by_command, by_document, resume_command
from delayq.connection import SyncConnection
from delayq.protocol.keys import FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.cli.output import Output
    from delayq.cli.snapshot import Snapshot
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts, ParkedKind
    from delayq.protocol.shard_map import ShardMap

HEADINGS = ["QUEUE", ">SCHEDULED", ">DUE", ">IN-FLIGHT", ">RETRYING", ">DEAD", ">OLDEST", "NEXT-DUE"]

interval_option = click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Time between two samples."
)
MIN_INTERVAL_MS = 100
MOST_KINDS = 5  # of parked tasks that a note names


def pause_seconds(interval_ms: int) -> float:
    """Return the pause between two samples, bounded below to limit the load on Redis."""
    return max(MIN_INTERVAL_MS, interval_ms) / 1000


@click.command(epilog=examples("delayq status orders --watch", "delayq status orders -o json"))
@on_queue
@click.option("-w", "--watch", is_flag=True, help="Print a line every --interval, until Ctrl-C.")
@interval_option
@output_option
def status(client: TargetClient, *, watch: bool, interval: int, output: Output) -> None:
    """Show the number of tasks in each state.

    It also shows how late the oldest task is, and when the next one falls due.

    While a node of a Cluster is unavailable, the command counts the tasks of the other shards and exits with 4.
    """
    printed = list[str]()
    if not watch:
        snapshot = take_snapshot(client)
        _print_notes(client, snapshot, printed)
        table = Table(_headings(client), [_row(client, snapshot.found)])
        emit(output, snapshot.view(client), table)
        sys.exit(UNAVAILABLE if snapshot.away else 0)
    first = True
    while True:
        snapshot = take_snapshot(client)
        printed = _print_notes(client, snapshot, printed)
        _print_sample(client, snapshot, output, first=first)
        first = False
        time.sleep(pause_seconds(interval))


def _print_notes(client: TargetClient, snapshot: Snapshot, printed: list[str]) -> list[str]:
    """Print and return the notes of a snapshot; leave out those already printed for the previous one."""
    moving = [] if client.shard_map.settled else [resharding(client.queue, client.shard_map)]
    notes = [
        *moving,
        *other_format(snapshot),
        *documented(client),
        *on_hold(client, snapshot.found),
        *parked(client, snapshot),
        *refused(client, snapshot, printed),
    ]
    notes += snapshot.notes
    for each in notes:
        if each not in printed:
            note(each)
    return notes


def other_format(snapshot: Snapshot) -> list[str]:
    """Report that another version of delayq wrote the queue."""
    found = snapshot.found.format
    differs = f"! expected format {FORMAT}, got {found}: another version of delayq wrote this queue"
    return [] if found == FORMAT else [f"{differs}, and this one changes nothing there (delayq doctor)"]


def parked(client: TargetClient, snapshot: Snapshot) -> list[str]:
    """Report tasks of unknown kinds."""
    if not snapshot.found.parked:
        return []
    return [f"! {parked_sentence(snapshot.found, snapshot.parked)}{_listed(client, 'parked')}"]


def _listed(client: TargetClient, state: str) -> str:
    return f" ({client.target.command('task list')} --state {state})"


def refused(client: TargetClient, snapshot: Snapshot, printed: Sequence[str]) -> list[str]:
    """Report tasks whose arguments the workers refuse; look for them until one was found."""
    if not snapshot.found.retrying:
        return []
    listed = _listed(client, "retrying")
    if earlier := [each for each in printed if each.endswith(listed)]:
        return earlier
    shards = [shard for shard in range(snapshot.shards) if shard not in snapshot.away]
    with closing(SyncConnection(client.address)) as connection:
        said = refused_sentence(connection, client.commands, shards)
    return [f"! {said}{listed}"] if said else []


def parked_sentence(found: Counts, kinds: Sequence[ParkedKind]) -> str:
    """Say how many tasks of unknown kinds there are, and name the kinds with the most of them."""
    names = [
        f"{each.kind} {each.version} ({each.tasks:,}, the oldest due for "
        f"{length(max(0, found.now_ms - each.oldest_due_ms))})"
        if each.kind
        else f"without a kind ({each.tasks:,})"
        for each in kinds[:MOST_KINDS]
    ]
    more = [tasks(len(kinds) - MOST_KINDS, "more kind")] if len(kinds) > MOST_KINDS else []
    named = f": {', '.join(names + more)}" if names else ""
    return f"{found.parked:,} parked: no worker knew their kind or version{named}"


def documented(client: TargetClient) -> list[str]:
    """Report a changed spec.shards that no process has applied."""
    wanted, shard_map = client.documented, client.shard_map
    if wanted is None or not shard_map.epoch or not shard_map.settled or wanted == shard_map.shards:
        return []
    differs = f"! shards: the document says {wanted}, the queue has {shard_map.shards}"
    return [f"{differs}: a scanner that starts with the document changes that"]


def on_hold(client: TargetClient, found: Counts) -> list[str]:
    """Report what suspends the queue: the document, `delayq suspend`, or both."""
    document, command = by_document(client.target), found.suspension
    notes = [f"note: {document}: {WORKERS}"] if document else []
    if command is not None:
        said = f"note: {by_command(command, found.now_ms)}: {WORKERS}"
        notes.append(f"{said}; to start tasks: {resume_command(client.target)}")
    return notes


def resharding(queue: str, shard_map: ShardMap) -> str:
    """Describe the resharding in progress."""
    if shard_map.moves:
        return f"note: tasks of {queue} move from {shard_map.was} to {tasks(shard_map.target, 'shard')}"
    return f"note: {queue} is about to have {tasks(shard_map.target, 'shard')} instead of {shard_map.shards}"


def _print_sample(client: TargetClient, snapshot: Snapshot, output: Output, *, first: bool) -> None:
    """Print one sample: a line of a table with columns of fixed width, a line of JSON, or a YAML document."""
    if output == "table":
        headings = _headings(client)
        spaces = [[" " * len(client.queue), *["9,999,999"] * (len(headings) - 2), ""]]
        heading, _, line = Table(headings, [*spaces, _row(client, snapshot.found)]).lines()
        click.echo(f"{heading}\n{line}" if first else line)
    else:
        emit_next(output, snapshot.view(client))


def _headings(client: TargetClient) -> list[str]:
    """Show BYTES only where limits.maxBytes is set."""
    return HEADINGS if client.limits.max_bytes is None else [*HEADINGS[:-1], ">BYTES", HEADINGS[-1]]


def _row(client: TargetClient, found: Counts) -> list[str]:
    numbers = (found.scheduled, found.due, found.in_flight, found.retrying, found.dead)
    weight = [] if client.limits.max_bytes is None else [f"{found.bytes:,}"]
    return [client.queue, *(f"{number:,}" for number in numbers), oldest(found), *weight, following(found)]


def oldest(found: Counts) -> str:
    """Format the lateness of the oldest due task."""
    return length(found.late_ms) if found.due else "-"


def following(found: Counts) -> str:
    """Format when the next task falls due."""
    return "-" if found.next_due_ms is None else relative(found.next_due_ms, found.now_ms)
