"""The CLI's commands under kubectl dq, which run where Redis is reachable.

The plugin parses the command line before it accesses the cluster. Files are local: the plugin sends an input file to
the command's stdin and writes its stdout to an output file (remote_command.py).
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from delayq.cli.kubectl.forward import run
from delayq.cli.kubectl.kubectl import Kubectl
from delayq.cli.kubectl.options import complete_name, where_of, where_params
from delayq.cli.kubectl.redis_access import by_exec, find_access
from delayq.cli.kubectl.remote_command import remote_command
from delayq.cli.root import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.cli.kubectl.kubectl import Object

QUEUE: Final = ("queue", "queues")
LEFT_OUT: Final = ("redis", "shards", "key_prefix")
"""Options that locate a queue: here the DelayQueue does."""

RAW: Final = "delayq.cli.kubectl.raw"


def command(name: str) -> click.Command:
    """Return a command of kubectl dq for one of the CLI."""
    return passed(load(name), (name,))


def passed(original: click.Command, path: tuple[str, ...]) -> click.Command:
    about = (original.help or "").replace(
        "QUEUE is the path of a DelayQueue document, or the name of a queue.", ""
    )
    if isinstance(original, click.Group):
        within = {name: passed(inner, (*path, name)) for name, inner in original.commands.items()}
        return click.Group(
            path[-1], within, help=about.replace("delayq ", "kubectl dq "), params=where_params()
        )
    return Passed(original, path, about)


class Passed(click.Command):
    """A command with NAME, its own options, and kubectl's."""

    def __init__(self, original: click.Command, path: tuple[str, ...], about: str) -> None:
        """`path`: the command's words below `delayq`."""
        forward = click.Option(
            ["--port-forward", "forwarded"],
            is_flag=True,
            help="Reach Redis through kubectl port-forward instead of from a scanner pod.",
        )
        namespace = click.Option(
            ["--redis-namespace"],
            metavar="NAMESPACE",
            help="Namespace of Redis' Service for port-forward, if it is not the queue's namespace.",
        )
        own = [_param(each) for each in original.params if each.name not in LEFT_OUT]
        about = about.replace("delayq ", "kubectl dq ")
        super().__init__(path[-1], params=[*own, forward, namespace, *where_params()], help=about)
        self.path = path

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the raw arguments, which the remote command parses again."""
        typed, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[RAW] = typed
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        """Run the command, and exit with its code."""
        sys.exit(self.run(Kubectl(where_of(ctx)), ctx.meta[RAW], ctx.params))

    def run(self, kubectl: Kubectl, raw: Mapping[str, Any], params: Mapping[str, Any]) -> int:
        """Find access to Redis, and run the command there."""
        name = str(next(params[each] for each in QUEUE if each in params))
        found = find_access(
            kubectl,
            name,
            forward=params["forwarded"],
            namespace=params["redis_namespace"],
            any_pod=self.path == ("doctor",),
        )
        known = of_forecast(found.queue) if self.path[0] == "forecast" else {}
        job = remote_command(self, {**known, **raw}, params)
        return by_exec(kubectl, found, job) if found.pod else run(kubectl, found, job)


def _param(original: click.Parameter) -> click.Parameter:
    if original.name in QUEUE:
        return click.Argument([original.name], metavar="NAME", shell_complete=complete_name)
    return copy.copy(original)


def of_forecast(queue: Object) -> dict[str, str]:
    """Return the operator's measurements as options of the CLI; the user's options override them.

    The options include the number of workers, which the document in the pods leaves out.
    """
    spec, scaling = queue["spec"], queue.get("status", {}).get("scaling") or {}
    replicas = spec.get("worker", {}).get("replicas")
    found = {"most": str(replicas)} if replicas is not None and spec.get("autoscaling") is None else {}
    # A leadTimeSeconds of the document overrides the measurement.
    documented = (spec.get("autoscaling") or {}).get("leadTimeSeconds")
    if scaling.get("handlerMilliseconds"):
        found["handler_ms"] = f"{scaling['handlerMilliseconds']}ms"
    if scaling.get("leadSeconds") and documented in (None, "auto"):
        found["lead_ms"] = f"{scaling['leadSeconds']}s"
    return found
