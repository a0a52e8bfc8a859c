"""The root command of kubectl dq: its own commands, and the CLI's commands on queues."""

from __future__ import annotations

import logging
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import ShellComplete

import delayq as package
from delayq.cli.kubectl.options import where_params
from delayq.cli.root import Root

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

OWN: Final = {
    "status": "status",
    "hold": "holding",
    "unhold": "holding",
    "reconcile": "holding",
    "report": "report",
    "schedules": "schedules",
}
"""Command → module."""

PASSED: Final = ("top", "forecast", "schedule", "task", "dlq", "doctor")
"""Commands of the CLI that run where Redis is reachable."""

NO_FILES: Final = ":4"
FILES: Final = ":0"
"""Completion directives of kubectl: no file names, or file names too."""


class Plugin(Root):
    """A root command with the CLI's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the names of all commands, the most used first."""
        return ["status", *PASSED, *(name for name in OWN if name != "status")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command when it is used."""
        if cmd_name in OWN:
            command: click.Command = getattr(import_module(f"delayq.cli.kubectl.{OWN[cmd_name]}"), cmd_name)
            return command
        if cmd_name in self.list_commands(ctx):
            return import_module("delayq.cli.kubectl.passed").command(cmd_name)  # type: ignore[no-any-return]
        return None

    def main(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 -- click's signature
        """Run and exit. SIGTERM also runs the cleanup, so that no kubectl child process remains."""
        signal.signal(signal.SIGTERM, _terminated)
        super().main(*args, **extra)


def _terminated(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


@click.group(
    cls=Plugin,
    name="dq",
    params=where_params(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package.__version__, prog_name="kubectl dq")
def kubectl_dq() -> None:
    """Inspect DelayQueues and manage their tasks.

    NAME is a DelayQueue of the namespace. -n, --context and --kubeconfig have kubectl's meaning. The plugin runs
    kubectl from the PATH, or the program in $KUBECTL, with your rights.
    """
    logging.getLogger("delayq").addHandler(logging.NullHandler())  # commands print their own messages


def candidates(words: Sequence[str]) -> list[str]:
    """Return completions for the last of these words, in kubectl's format for plugins."""
    *before, incomplete = words or [""]
    found = ShellComplete(kubectl_dq, {}, "kubectl dq", "").get_completions(list(before), incomplete)
    plain = [each for each in found if each.type == "plain"]
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in plain]
    return [*lines, NO_FILES if len(plain) == len(found) else FILES]
