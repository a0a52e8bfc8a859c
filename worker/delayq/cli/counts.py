"""delayq counts: how many tasks are in each state, once or again and again."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import UNAVAILABLE
from delayq.cli.inputs import DURATION
from delayq.cli.look import look
from delayq.cli.on_queue import on_queue
from delayq.cli.output import Table, emit, note, one_line, output_option
from delayq.cli.words import length, relative

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.look import Look
    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts
    from delayq.protocol.shard_map import Layout

HEADINGS = ["QUEUE", ">DELAYED", ">RETRY", ">PROCESSING", ">DLQ", ">OVERDUE", ">OLDEST", "NEXT-DUE"]

MIN_INTERVAL_MS = 100


def interval_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --interval."""
    return click.option(
        "--interval", type=DURATION, default="1s", show_default=True, help="Between two looks."
    )(command)


def pause_seconds(interval_ms: int) -> float:
    """Return the pause between two looks: not so short that Redis does little else."""
    return max(MIN_INTERVAL_MS, interval_ms) / 1000


@click.command()
@on_queue
@click.option("--watch", is_flag=True, help="Go on, a line every --interval, until Ctrl-C.")
@interval_option
@output_option
def counts(client: TargetClient, *, watch: bool, interval: int, output: Output) -> None:
    """Count the tasks of a queue: by state, overdue, and when the next falls due.

    While a node of a Cluster is away, the shards of the others are counted, and it exits with 4.
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
    moving = [] if client.layout.settled else [resharding(client.queue, client.layout)]
    notes = [*moving, *documented(client), *seen.notes]
    for each in notes:
        if each not in said:
            note(each)
    return notes


def documented(client: TargetClient) -> list[str]:
    """Say that the document was edited and nobody has asked for it, while nothing changes."""
    wanted, layout = client.documented, client.layout
    if wanted is None or not layout.epoch or not layout.settled or wanted == layout.shards:
        return []
    says = f"! shards: the document says {wanted}, the queue has {layout.shards}"
    return [f"{says}: a scanner that starts with the document changes that"]


def resharding(queue: str, layout: Layout) -> str:
    """Say what becomes of the queue's shards."""
    if layout.moves:
        return f"note: tasks of {queue} move from {layout.was} to {layout.target} shards"
    return f"note: {queue} is about to have {layout.target} shards instead of {layout.shards}"


def _watched(client: TargetClient, seen: Look, output: Output, *, first: bool) -> None:
    """Write one sample: a line of a table whose columns stay where they are, a line of JSON, a YAML document."""
    if output == "table":
        headings = _headings(client)
        spaces = [[" " * len(client.queue), *["9,999,999"] * (len(headings) - 2), ""]]
        heading, _, line = Table(headings, [*spaces, _row(client, seen.found)]).lines()
        click.echo(f"{heading}\n{line}" if first else line)
    elif output == "json":
        click.echo(one_line(seen.view(client.queue)))
    else:
        click.echo("---")
        emit(output, seen.view(client.queue), "")


def _headings(client: TargetClient) -> list[str]:
    """What weighs is of interest where there is a limit to it."""
    return HEADINGS if client.limits.max_bytes is None else [*HEADINGS[:-1], ">BYTES", HEADINGS[-1]]


def _row(client: TargetClient, found: Counts) -> list[str]:
    numbers = (found.delayed, found.retry + found.suspect, found.processing, found.dlq, found.overdue)
    weight = [] if client.limits.max_bytes is None else [f"{found.bytes:,}"]
    return [client.queue, *(f"{number:,}" for number in numbers), oldest(found), *weight, following(found)]


def oldest(found: Counts) -> str:
    """Say for how long the most overdue task has been due."""
    return length(found.oldest_overdue_ms) if found.overdue else "-"


def following(found: Counts) -> str:
    """Say when the next task falls due."""
    return "-" if found.next_due_ms is None else relative(found.next_due_ms, found.now_ms)
