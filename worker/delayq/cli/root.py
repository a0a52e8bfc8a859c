"""The root command, and which module holds which group."""

from __future__ import annotations

import click

import delayq as package
from delayq.cli import process
from delayq.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package.__version__, prog_name="delayq")
def delayq() -> None:
    """A delay queue on Redis: tasks run when they fall due, never early, never lost."""


for command in (run, process.scanner, process.worker, process.reap):
    delayq.add_command(command)
