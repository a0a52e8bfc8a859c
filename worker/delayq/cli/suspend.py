"""delayq suspend: stop the tasks of a queue, with or without Kubernetes."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from delayq.cli.exits import CommandError
from delayq.cli.formats import tasks
from delayq.cli.inputs import examples
from delayq.cli.on_queue import on_queue
from delayq.cli.output import note
from delayq.cli.suspension import by_document, in_each_shard, resume_command

if TYPE_CHECKING:
    from delayq.cli.target import TargetClient

STOPS_SECONDS: Final = 2.0  # every worker that reaches Redis has stopped claiming
LOOK_SECONDS: Final = 0.5
MOST_CHARACTERS: Final = 200


@click.command(epilog=examples("delayq suspend orders --reason 'the bank is down'"))
@on_queue
@click.option(
    "--drain",
    is_flag=True,
    help="Wait until no task runs. On Kubernetes, the operator then removes the workers.",
)
@click.option("--reason", metavar="TEXT", default="", help="Why; status, top and doctor show it.")
def suspend(client: TargetClient, *, drain: bool, reason: str) -> None:
    """Stop starting tasks of a queue. Running tasks finish; clients can still schedule tasks, which wait.

    Workers claim nothing from 2 seconds on, also those that start later. This is stored in Redis, not in the document:
    it lasts until `delayq resume` or `delayq erase`.
    """
    if len(reason) > MOST_CHARACTERS or not (reason.isprintable() or not reason):
        raise CommandError(f"--reason: expected a line of at most {MOST_CHARACTERS} characters")
    if unused := client.unused():
        note(f"warning: {unused}: is the name right?")
    in_each_shard(client, partial(client.commands.suspend, drain=drain, reason=reason))
    click.echo(
        f"{client.queue} suspended: running tasks finish, workers claim nothing more; scheduled tasks wait."
    )
    click.echo(f"To start tasks again: {resume_command(client.target)}")
    if document := by_document(client.target):
        note(f"note: also {document}")
    if drain:
        _wait(client)


def _wait(client: TargetClient) -> None:
    """Wait until no worker holds a lease. Before STOPS_SECONDS, one may still claim."""
    time.sleep(STOPS_SECONDS)
    said = 0
    while running := _running(client):
        if running != said:
            note(f"{tasks(running)} in flight")
        said = running
        time.sleep(LOOK_SECONDS)
    click.echo(f"{client.queue} drained: no task runs")


def _running(client: TargetClient) -> int:
    found = client.counts()
    return found.in_flight - found.lapsed
