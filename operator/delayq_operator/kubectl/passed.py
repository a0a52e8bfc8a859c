"""Commands of `delayq` that run in a scanner pod, which has the document, the Secrets and the way to Redis.

Their options go there unread, except for what concerns this machine: its files, and whether there is a terminal.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
from delayq.cli.exits import NOT_FOUND, CommandError
from delayq.cli.root import load
from delayq.contract.files import CONFIG_FILE

from delayq_operator.kubectl import queues, remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem
    from delayq.kube.objects import Object

ELSEWHERE: Final = ("--redis", "--shards", "--key-prefix")
"""Options that locate a queue: here the DelayQueue does."""
FILES: Final = {"--many": "stdin", "--to": "stdout"}
"""Options with a file of this machine → the stream that it is in the pod."""
DRAWS: Final = {"top": ("--once", "-o", "--output")} | dict.fromkeys(
    ("task cancel", "task reschedule", "dlq purge"), ("--yes", "--dry-run")
)
"""Command that draws on a terminal or asks a question there → options with which it does not."""


OF_QUEUE: Final = "QUEUE is the path of a DelayQueue document, or the name of a queue."


@dataclass(frozen=True, kw_only=True)
class Call:
    """What runs in the pod."""

    words: tuple[str, ...]
    files: dict[str, str]
    """Stream → file of this machine; `-`: the stdin of this process."""
    terminal: bool
    """Whether it draws on a terminal, or asks a question there."""


def call(path: Sequence[str], rest: Sequence[str]) -> Call:
    """Return the call for the words behind NAME."""
    sent, files, left = [*path, CONFIG_FILE], dict[str, str](), iter(rest)
    for word in left:
        option, equals, value = word.partition("=")
        if option in ELSEWHERE:
            raise CommandError(f"{option}: the DelayQueue says where its tasks are", "leave the option out")
        if option in FILES:
            files[FILES[option]] = value if equals else next(left, "")
            sent += ["--many=-"] if option == "--many" else []
        elif path[0] == "schedule" and word.startswith("@"):
            files["stdin"] = word[1:]
            sent.append("-")
        else:
            sent += [word, *(left if word == "--" else ())]
    if "-" in sent:
        files.setdefault("stdin", "-")
    if files.get("stdout") == "-":
        del files["stdout"]  # to a terminal, filtered
    return Call(words=tuple(sent), files=files, terminal=_draws(path, rest))


def _draws(path: Sequence[str], rest: Sequence[str]) -> bool:
    by_id = path[0] == "task" and bool(rest) and not rest[0].startswith("-")  # it asks about many only
    quiet = DRAWS.get(" ".join(path))
    return quiet is not None and not by_id and not any(word.startswith(quiet) for word in rest)


def command(name: str) -> click.Command:
    """Return the command of kubectl dq for one of `delayq`."""
    return passed(load(name), (name,))


def passed(original: click.Command, path: tuple[str, ...]) -> click.Command:
    """Return the same command, or group of commands, for NAME instead of QUEUE."""
    shown = copy.copy(original)
    shown.help = (original.help or "").replace(OF_QUEUE, "").replace("delayq ", "kubectl dq ")
    shown.epilog = (original.epilog or "").replace("delayq ", "kubectl dq ")
    if isinstance(original, click.Group):
        within = {name: passed(inner, (*path, name)) for name, inner in original.commands.items()}
        return click.Group(path[-1], within, help=shown.help)
    others = [each for each in original.params if each.opts[0] not in (*ELSEWHERE, "queue", "queues")]
    shown.params = [click.Argument(["queue"], metavar="NAME"), *others]
    return Passed(shown, path)


class Passed(queues.Words):
    """A command of `delayq`: NAME, then its own arguments and options."""

    def __init__(self, shown: click.Command, path: tuple[str, ...]) -> None:
        """`shown`: for help and completion. `path`: the command's words below `delayq`."""
        super().__init__(path[-1], help=shown.help)
        self.shown, self.path = shown, path

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the original."""
        self.shown.format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the original's options."""
        return self.shown.shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        """Run the command in a pod, and exit with its code."""
        words, kubectl = ctx.params["words"], ctx.obj
        if {"-h", "--help"} & {*words}:
            click.echo(ctx.get_help())
            return
        if not words or words[0].startswith("-"):  # behind options that are not parsed, it could not be found
            raise click.UsageError(f"expected NAME first, got {words[0] if words else 'nothing'}", ctx)
        name, *rest = words
        made = call(self.path, rest)  # before anything asks the cluster
        try:
            if self.path == ("forecast",):
                made = call(self.path, [*measured(kubectl.json("get", queues.KIND, name)), *rest])
            code = remote.run(kubectl, name, made)
        except CommandError as error:
            if error.code == NOT_FOUND:
                kubectl.text("get", queues.KIND, name)  # there may be no such queue
            raise
        sys.exit(code)


def measured(queue: Object) -> list[str]:
    """Return the operator's measurements as options of forecast; the user's options come later and override them.

    They include the number of workers, which the document in the pods leaves out.
    """
    spec, scaling = queue["spec"], queue.get("status", {}).get("scaling") or {}
    autoscaling, replicas = spec.get("autoscaling"), spec.get("worker", {}).get("replicas")
    found = [f"--max={replicas}"] if replicas is not None and autoscaling is None else []
    if scaling.get("handlerMilliseconds"):
        found.append(f"--handler-time={scaling['handlerMilliseconds']}ms")
    # A leadTimeSeconds of the document overrides the measurement.
    if scaling.get("leadTimeSeconds") and not isinstance((autoscaling or {}).get("leadTimeSeconds"), int):
        found.append(f"--lead={scaling['leadTimeSeconds']}s")
    return found
