"""delayq reaper."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import DURATION
from delayq.cli.process import process_options, setting_of
from delayq.processes.reaper import run_reaper

ONE_PASS_SECONDS = 180.0  # at most: a DelayQueue's Job may take 300 s, and has to pull an image


@click.command()
@process_options
@click.option(
    "--for",
    "sweep_ms",
    type=DURATION,
    help="Go on for this long; 0s: until SIGTERM. Without it, the process ends after one pass over all there is.",
)
def reaper(sweep_ms: int | None, **options: Any) -> None:  # noqa: ANN401 -- click's, named in process_options
    """Sweep for expired leases, reconcile the indexes, purge dead letters past their retention.

    One pass takes three minutes at most. With more than half a million tasks, run it with --for 0s instead.
    """
    with errors_as_exits():
        seconds = ONE_PASS_SECONDS if sweep_ms is None else sweep_ms / 1000 or None
        run_reaper(setting_of(**options), seconds, once=sweep_ms is None)
