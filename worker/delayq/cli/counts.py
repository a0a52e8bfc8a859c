"""delayq counts: how many tasks are in each state, once or again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from delayq.cli import views
from delayq.cli.inputs import DURATION
from delayq.cli.on_queue import on_queue
from delayq.cli.output import Table, emit, one_line, output_option
from delayq.cli.words import length, relative

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.output import Output
    from delayq.sync_client import SyncClient
    from delayq.values import Counts

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
def counts(client: SyncClient, *, watch: bool, interval: int, output: Output) -> None:
    """Count the tasks of a queue: by state, overdue, and when the next falls due."""
    if not watch:
        found = client.counts(views.HORIZONS_MS)
        emit(output, views.counts(client.queue, found), Table(HEADINGS, [_row(client.queue, found)]))
        return
    first = True
    while True:
        _watched(client.queue, client.counts(views.HORIZONS_MS), output, first=first)
        first = False
        time.sleep(pause_seconds(interval))


def _watched(queue: str, found: Counts, output: Output, *, first: bool) -> None:
    """Write one sample: a line of a table whose columns stay where they are, a line of JSON, a YAML document."""
    if output == "table":
        spaces = [[" " * len(queue), *["9,999,999"] * 6, ""]]
        heading, _, line = Table(HEADINGS, [*spaces, _row(queue, found)]).lines()
        click.echo(f"{heading}\n{line}" if first else line)
    elif output == "json":
        click.echo(one_line(views.counts(queue, found)))
    else:
        click.echo("---")
        emit(output, views.counts(queue, found), "")


def _row(queue: str, found: Counts) -> list[str]:
    numbers = (found.delayed, found.retry, found.processing, found.dlq, found.overdue)
    return [queue, *(f"{number:,}" for number in numbers), oldest(found), following(found)]


def oldest(found: Counts) -> str:
    """Say for how long the most overdue task has been due."""
    return length(found.oldest_overdue_ms) if found.overdue else "-"


def following(found: Counts) -> str:
    """Say when the next task falls due."""
    return "-" if found.next_due_ms is None else relative(found.next_due_ms, found.now_ms)
