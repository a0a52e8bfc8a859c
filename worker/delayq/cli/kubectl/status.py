"""kubectl dq status: one DelayQueue for people, or all of a namespace side by side. The words are in status_text.py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import USAGE, Wrong
from delayq.cli.kubectl import queues, status_text
from delayq.cli.kubectl.naming import names_there
from delayq.cli.kubectl.options import kubectl_options
from delayq.cli.output import emit, output_option

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl
    from delayq.cli.output import Output


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=names_there)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All queues of all namespaces.")
@click.option(
    "--events",
    "shown",
    type=click.IntRange(0, 1000),
    default=8,
    show_default=True,
    help="How many, the last.",
)
@output_option
@kubectl_options
def status(kubectl: Kubectl, *, name: str | None, everywhere: bool, shown: int, output: Output) -> None:
    """Show how a queue does: tasks, workers, what was decided and why, what is wrong with which pod.

    Without NAME, a line for each queue of the namespace.
    """
    now = time.time()
    if name is None:
        found = queues.every(kubectl, everywhere=everywhere)
        emit(
            output,
            [status_text.summary(each) for each in found],
            status_text.overview(found, now, everywhere=everywhere),
        )
        return
    if everywhere:
        raise Wrong("--all-namespaces: expected no NAME, got one", "-n tells its namespace", USAGE)
    queue = queues.one(kubectl, name)
    view = status_text.View(
        queue=queue,
        pods=queues.pods(kubectl, queue),
        unled=queues.unled(kubectl, queue, now),
        events=queues.events(kubectl, queue)[-shown:] if shown else [],
    )
    emit(output, status_text.data(view), "\n".join(status_text.told(view, now)))
