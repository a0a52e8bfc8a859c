"""delayq resume: let the tasks of a queue start again after `delayq suspend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from delayq.cli.inputs import examples
from delayq.cli.on_queue import on_queue
from delayq.cli.output import note
from delayq.cli.suspension import by_document, in_each_shard, resume_document

if TYPE_CHECKING:
    from delayq.cli.target import TargetClient


@click.command(epilog=examples("delayq resume orders"))
@on_queue
def resume(client: TargetClient) -> None:
    """Start tasks of a queue again, which `delayq suspend` stopped. It does not change the document."""
    before = in_each_shard(client, client.commands.resume)
    document = by_document(client.target)
    if before is None:
        click.echo(f"{client.queue} was not suspended by delayq suspend: nothing changed")
    elif not document:
        click.echo(f"{client.queue} resumed: workers start tasks again")
    else:
        click.echo(f"{client.queue}: delayq suspend no longer applies")
    if document:
        note(f"note: still {document}; to start tasks: {resume_document(client.target)}")
