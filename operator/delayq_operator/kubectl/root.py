"""The commands of kubectl dq, the options of kubectl, and completion."""

from __future__ import annotations

import logging
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click
import delayq as package
from click.shell_completion import ShellComplete
from delayq.cli.root import EXITS, Root

from delayq_operator.kubectl.kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "status": "status.status",
    "top": "passed",
    "forecast": "passed",
    "schedule": "passed",
    "task": "passed",
    "dlq": "passed",
    "doctor": "passed",
    "suspend": "suspending.suspend",
    "resume": "suspending.resume",
    "reconcile": "suspending.reconcile",
    "report": "report.report",
    "cron": "cron.cron",
}
"""Name → module and command here, or `passed`: the command of `delayq` with this name runs in a pod."""

OPTIONS: Final = {each: each for each in ("--namespace", "--context", "--kubeconfig")} | {"-n": "--namespace"}
NO_FILES, FILES = ":4", ":0"
"""Completion directives of kubectl: no file names, or file names too."""


class Plugin(Root):
    """A root command with the CLI's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the names of all commands, the most used first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- as above
        """Load a command when it is used."""
        module, _, name = COMMANDS.get(cmd_name, "").partition(".")
        if not module:
            return None
        found = import_module(f"delayq_operator.kubectl.{module}")
        command: click.Command = getattr(found, name) if name else found.command(cmd_name)
        return command

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:  # noqa: ANN401 -- click's signature
        """Take the options of kubectl out of the arguments."""
        options, words = split(args)
        return super().make_context(info_name, words, *more, obj=Kubectl(options), **extra)


def split(args: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return kubectl's options, wherever they are before `--`, and the other words."""
    options, words, left = list[str](), list[str](), iter(args)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            return tuple(options), [*words, word, *left]
        if word.startswith("-n") and word[2:3] not in ("", "="):
            name, equals, value = "-n", "=", word[2:]
        if name not in OPTIONS:
            words.append(word)
        elif not (value := value if equals else next(left, "")):
            raise click.UsageError(f"option {name}: expected a value, got none")
        else:
            options.append(f"{OPTIONS[name]}={value}")
    return tuple(options), words


@click.group(
    cls=Plugin,
    name="dq",
    epilog="Every command takes -n, --namespace TEXT, --context TEXT and --kubeconfig PATH, as kubectl does. "
    + EXITS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package.__version__, prog_name="kubectl dq")
def kubectl_dq() -> None:
    """Inspect DelayQueues and manage their tasks.

    NAME is a DelayQueue of the namespace, and comes before options. The plugin runs kubectl from the PATH, or the
    program in $KUBECTL, with your rights.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends child processes, too
    logging.getLogger("delayq").addHandler(logging.NullHandler())  # commands print their own messages


def candidates(words: Sequence[str]) -> list[str]:
    """Return completions for the last of these words, in kubectl's format for plugins."""
    *before, incomplete = words or [""]
    try:
        found = ShellComplete(kubectl_dq, {}, "kubectl dq", "").get_completions(before, incomplete)
    except click.UsageError:  # the value of an option is being typed
        return [FILES]
    plain = [each for each in found if each.type == "plain"]
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in plain]
    return [*lines, NO_FILES if len(plain) == len(found) else FILES]
