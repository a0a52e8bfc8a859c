"""delayq scanner."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import PORT
from delayq.cli.process import process_options, setting_of
from delayq.processes.scanner import run_scanner


@click.command()
@process_options
@click.option(
    "--horizons-port",
    type=PORT,
    envvar="DELAYQ_HORIZONS_PORT",
    show_envvar=True,
    help="Where it answers /metrics?horizon=…, for the operator alone; absent: nowhere.",
)
def scanner(**options: Any) -> None:  # noqa: ANN401 -- click's, named in process_options
    """Wake workers when tasks fall due, take back the leases of dead ones, export what the queue holds."""
    with errors_as_exits():
        run_scanner(setting_of(**options))
