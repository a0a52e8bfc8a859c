"""delayq reaper."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import DURATION, examples
from delayq.cli.process import queues_options, settings_of
from delayq.processes.reaper import run_reaper

ONE_PASS_SECONDS = 180.0  # maximum: a DelayQueue's Job has 300 s, image pull included


@click.command(epilog=examples("delayq reaper queue.yaml", "delayq reaper queue.yaml --for 0s --port 9102"))
@queues_options
@click.option(
    "--for",
    "sweep_ms",
    type=DURATION,
    help="How long to run; 0s: until SIGTERM. Without it, the process ends after one pass over all tasks.",
)
def reaper(sweep_ms: int | None, **options: Any) -> None:  # noqa: ANN401 -- click's, named in queues_options
    """Run a reaper: repair and clean up.

    A reaper reclaims expired leases, reconciles the indexes, and purges dead letters older than their retention.

    One pass takes three minutes at most. For more than half a million tasks, run the reaper with --for 0s.

    One reaper can serve several queues.
    """
    with errors_as_exits():
        seconds = ONE_PASS_SECONDS if sweep_ms is None else sweep_ms / 1000 or None
        run_reaper(settings_of(**options), seconds, once=sweep_ms is None)
