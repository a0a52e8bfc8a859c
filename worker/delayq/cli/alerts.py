"""delayq alerts: the alerting rules of queues, for a Prometheus outside Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import yaml

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import DOCUMENT
from delayq.client.document import read
from delayq.contract import alerts as contract

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 1_000_000  # an expression on one line can be searched


@click.command()
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True, type=DOCUMENT)
def alerts(documents: tuple[Path, ...]) -> None:
    """Print alerting rules for Prometheus.

    The output has the rules of the queues of DOCUMENTs, as a file for rule_files.

    On Kubernetes, the operator creates them: spec.monitoring.prometheusRule. Elsewhere, write them to a file:
    delayq alerts orders.yaml >delayq.rules.yaml. Write them again when a document changes.
    """
    with errors_as_exits("delayq validate checks documents"):
        queues = [read(document) for document in documents]
    groups = [
        {"name": f"delayq.{queue.metadata.name}", "rules": contract.rules(queue, None)} for queue in queues
    ]
    click.echo(yaml.safe_dump({"groups": groups}, sort_keys=False, allow_unicode=True, width=WIDTH), nl=False)
