"""delayq status: how many tasks are in each state, once or repeatedly."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import UNAVAILABLE
from delayq.cli.inputs import DURATION
from delayq.cli.look import look
from delayq.cli.on_queue import on_queue
from delayq.cli.output import Table, emit, emit_next, note, output_option
from delayq.cli.words import length, relative

if TYPE_CHECKING:
    from delayq.cli.look import Look
    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts
    from delayq.protocol.shard_map import ShardMap

HEADINGS = ["QUEUE", ">SCHEDULED", ">DUE", ">IN-FLIGHT", ">RETRYING", ">DEAD", ">OLDEST", "NEXT-DUE"]

interval_option = click.option(
    "--interval", type=DURATION, default="1s", show_default=True, help="Between two looks."
)
MIN_INTERVAL_MS = 100


def pause_seconds(interval_ms: int) -> float:
    """Return the pause between two looks: not so short that Redis does little else."""
    return max(MIN_INTERVAL_MS, interval_ms) / 1000


@click.command()
@on_queue
@click.option("-w", "--watch", is_flag=True, help="Print a line every --interval, until Ctrl-C.")
@interval_option
@output_option
def status(client: TargetClient, *, watch: bool, interval: int, output: Output) -> None:
    """Show how many tasks of a queue are in each state, how late the oldest is, and when the next falls due.

    While a node of a Cluster is away, the tasks of the other shards are counted, and the exit code is 4.
    """
    said = list[str]()
    if not watch:
        seen = look(client)
        _noted(client, seen, said)
        table = Table(_headings(client), [_row(client, seen.found)])
        emit(output, seen.view(client.queue), table)
        sys.exit(UNAVAILABLE if seen.away else 0)
    first = True
    while True:
        seen = look(client)
        said = _noted(client, seen, said)
        _watched(client, seen, output, first=first)
        first = False
        time.sleep(pause_seconds(interval))


def _noted(client: TargetClient, seen: Look, said: list[str]) -> list[str]:
    """Say beside the numbers what they do not; what was said of the sample before is not repeated."""
    moving = [] if client.shard_map.settled else [resharding(client.queue, client.shard_map)]
    notes = [*moving, *documented(client), *seen.notes]
    for each in notes:
        if each not in said:
            note(each)
    return notes


def documented(client: TargetClient) -> list[str]:
    """Report a changed spec.shards that no process has applied."""
    wanted, shard_map = client.documented, client.shard_map
    if wanted is None or not shard_map.epoch or not shard_map.settled or wanted == shard_map.shards:
        return []
    says = f"! shards: the document says {wanted}, the queue has {shard_map.shards}"
    return [f"{says}: a scanner that starts with the document changes that"]


def resharding(queue: str, shard_map: ShardMap) -> str:
    """Say what becomes of the queue's shards."""
    if shard_map.moves:
        return f"note: tasks of {queue} move from {shard_map.was} to {shard_map.target} shards"
    return f"note: {queue} is about to have {shard_map.target} shards instead of {shard_map.shards}"


def _watched(client: TargetClient, seen: Look, output: Output, *, first: bool) -> None:
    """Write one sample: a line of a table whose columns stay where they are, a line of JSON, a YAML document."""
    if output == "table":
        headings = _headings(client)
        spaces = [[" " * len(client.queue), *["9,999,999"] * (len(headings) - 2), ""]]
        heading, _, line = Table(headings, [*spaces, _row(client, seen.found)]).lines()
        click.echo(f"{heading}\n{line}" if first else line)
    else:
        emit_next(output, seen.view(client.queue))


def _headings(client: TargetClient) -> list[str]:
    """What weighs is of interest where there is a limit to it."""
    return HEADINGS if client.limits.max_bytes is None else [*HEADINGS[:-1], ">BYTES", HEADINGS[-1]]


def _row(client: TargetClient, found: Counts) -> list[str]:
    numbers = (found.scheduled, found.due, found.in_flight, found.retrying, found.dead)
    weight = [] if client.limits.max_bytes is None else [f"{found.bytes:,}"]
    return [client.queue, *(f"{number:,}" for number in numbers), oldest(found), *weight, following(found)]


def oldest(found: Counts) -> str:
    """Say for how long the oldest due task has been due."""
    return length(found.late_ms) if found.due else "-"


def following(found: Counts) -> str:
    """Say when the next task falls due."""
    return "-" if found.next_due_ms is None else relative(found.next_due_ms, found.now_ms)
