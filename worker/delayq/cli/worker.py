"""delayq worker."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import examples
from delayq.cli.process import queues_options, settings_of
from delayq.processes.worker import run_worker


@click.command(epilog=examples("delayq worker queue.yaml --port 9111"))
@queues_options
def worker(**options: Any) -> None:  # noqa: ANN401 -- click's, named in queues_options
    """Run a worker: claim due tasks and run their handler.

    The first SIGTERM drains the worker. The second SIGTERM releases the running tasks at once.

    One worker can serve several queues with HTTP handlers and without guards.
    """
    with errors_as_exits():
        run_worker(settings_of(**options))
