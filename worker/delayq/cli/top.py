"""delayq top: queues side by side, again and again. Not here: what is shown (watched.py), keys (keyboard.py)."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from delayq.cli.counts import interval_option, pause_seconds
from delayq.cli.exits import UNAVAILABLE, errors_as_exits
from delayq.cli.keyboard import keyboard
from delayq.cli.on_queue import redis_options
from delayq.cli.output import emit, one_line, output_option
from delayq.cli.target import resolve
from delayq.cli.watched import Watched, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.cli.output import Output


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@redis_options
@click.option(
    "--once", is_flag=True, help="Two looks an interval apart, one table, and end; so it is in a pipe."
)
@interval_option
@output_option
def top(
    queues: tuple[str, ...],
    *,
    redis: str | None,
    shards: int | None,
    key_prefix: str | None,
    once: bool,
    interval: int,
    output: Output,
) -> None:
    """Show queues as they are now: states, what is overdue and falls due, and rates. q or Ctrl-C ends."""
    pause = pause_seconds(interval)
    with errors_as_exits(), ExitStack() as stack:
        targets = [resolve(queue, redis=redis, shards=shards, key_prefix=key_prefix) for queue in queues]
        watched = [Watched(stack.enter_context(target.client())) for target in targets]
        if output != "table" and not once:
            _stream(watched, pause, output)
        elif once or not sys.stdout.isatty():
            with errors_as_exits(targets[0].hint):
                _once(watched, pause, output)
        else:
            _live(watched, pause)


def _once(watched: Sequence[Watched], pause: float, output: Output) -> None:
    for nth in range(2):
        time.sleep(pause * nth)
        for each in watched:
            each.look()
            if each.found is None:
                each.client.counts()  # raises what is wrong, which a script has to hear
    emit(output, [each.view() for each in watched], table(watched))
    sys.exit(UNAVAILABLE if any(each.seen is not None and each.seen.away for each in watched) else 0)


def _stream(watched: Sequence[Watched], pause: float, output: Output) -> None:
    while True:
        for each in watched:
            each.look()
            if output == "json":
                click.echo(one_line(each.view()))
            else:
                click.echo("---")
                emit(output, each.view(), "")
        time.sleep(pause)


def _live(watched: Sequence[Watched], pause: float) -> None:
    from rich.live import Live  # noqa: PLC0415 -- pipes need not load it

    with keyboard() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            for each in watched:
                each.look()
            live.update(table(watched).rich(), refresh=True)
            if pressed(pause) in ("q", "Q"):
                return
