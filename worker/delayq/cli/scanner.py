"""delayq scanner."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import PORT, examples
from delayq.cli.process import queues_options, settings_of
from delayq.processes.scanner import run_scanner


@click.command(epilog=examples("delayq scanner orders.yaml mails.yaml --port 9101"))
@queues_options
@click.option(
    "--horizons-port",
    metavar="PORT",
    type=PORT,
    envvar="DELAYQ_HORIZONS_PORT",
    show_envvar=True,
    help="Port of /metrics?horizon=… for the operator. Without it, the scanner does not serve that path.",
)
def scanner(**options: Any) -> None:  # noqa: ANN401 -- click's, named in queues_options
    """Run a scanner: wake workers when tasks fall due.

    A scanner also reclaims expired leases, and exports the metrics of the queue.

    One scanner can serve several queues.
    """
    with errors_as_exits():
        run_scanner(settings_of(**options))
