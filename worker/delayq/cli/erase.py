"""delayq erase."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.formats import tasks
from delayq.cli.inputs import DURATION, confirm, examples
from delayq.cli.output import dry_run_option
from delayq.cli.process import process_options, settings_of
from delayq.cli.target import QUEUE, document_of, url_of_run
from delayq.client.blocking import SyncClient
from delayq.contract.files import CONFIG_FILE
from delayq.processes.eraser import run_eraser

PATIENCE = "60s"  # a Redis that restarts needs this time to load much data


@click.command(epilog=examples("delayq erase orders --dry-run", "delayq erase queue.yaml --yes"))
@click.argument("queue", type=QUEUE, default=CONFIG_FILE)
@process_options
@click.option(
    "--patience",
    type=DURATION,
    default=PATIENCE,
    show_default=True,
    help="How long to retry while Redis is unreachable or the queue is still in use.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation. Required if stdin is not a terminal.")
@dry_run_option
def erase(queue: str, *, patience: int, yes: bool, dry_run: bool, **options: Any) -> None:  # noqa: ANN401 -- click's, named in process_options
    """Delete a queue with all its tasks and dead letters from Redis. They cannot be restored.

    The erase Job of a DelayQueue with deletionPolicy Delete runs this command. First stop workers, scanners and
    reapers: the command also deletes what they or clients write meanwhile. Exit code 0 means that nothing is left.
    """
    with errors_as_exits():
        path, document = document_of(queue, "which names its Redis")
        options["redis"] = options["redis"] or url_of_run(path)
        [setting] = settings_of(documents=[path], queue=[document.queue], **options)
        if dry_run:
            with SyncClient.from_document(document, url=setting.url) as client:
                found = client.counts()
            total = found.waiting + found.in_flight + found.dead
            click.echo(f"would erase queue {document.queue} with {tasks(total)}; nothing changed")
            return
        if not yes:
            question = f"delete every task of queue {document.queue} in Redis at {setting.address.where}?"
            confirm(question, "--dry-run counts the tasks")
        run_eraser(setting, patience / 1000)
