"""delayq worker."""

from __future__ import annotations

from typing import Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.process import process_options, setting_of
from delayq.processes.worker import run_worker


@click.command()
@process_options
def worker(**options: Any) -> None:  # noqa: ANN401 -- click's, named in process_options
    """Run a worker: claim due tasks and run their handler.

    The first SIGTERM drains the worker. The second SIGTERM releases the running tasks at once.
    """
    with errors_as_exits():
        setting = setting_of(**options)
        with errors_as_exits(document=setting.document):
            run_worker(setting)
