"""The CLI's commands under kubectl dq: taken apart by the CLI's own options, carried out where Redis can be reached.

What is wrong on the command line is said here, before a cluster is asked anything. Files are this machine's: what is
read goes to the command's stdin, what is written comes from its stdout (remote_command.py).
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from delayq.cli.kubectl.forward import run
from delayq.cli.kubectl.kubectl import Kubectl
from delayq.cli.kubectl.options import name_param, where_of, where_params
from delayq.cli.kubectl.redis_access import by_exec, way
from delayq.cli.kubectl.remote_command import remote_command
from delayq.cli.root import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.cli.kubectl.kubectl import Object

QUEUE: Final = ("queue", "queues")
LEFT_OUT: Final = ("redis", "shards", "key_prefix")
"""Options that say where a queue is: the DelayQueue says it here."""

RAW: Final = "delayq.cli.kubectl.raw"


def command(name: str) -> click.Command:
    """Make a command of kubectl dq from one of the CLI."""
    return _passed(load(name), (name,))


def _passed(original: click.Command, path: tuple[str, ...]) -> click.Command:
    about = (original.help or "").replace(
        "QUEUE is the path of a DelayQueue document, or the name of a queue.", ""
    )
    if isinstance(original, click.Group):
        within = {name: _passed(inner, (*path, name)) for name, inner in original.commands.items()}
        return click.Group(
            path[-1], within, help=about.replace("delayq ", "kubectl dq "), params=where_params()
        )
    return Passed(original, path, about)


class Passed(click.Command):
    """One command: its own NAME and options, and kubectl's."""

    def __init__(self, original: click.Command, path: tuple[str, ...], about: str) -> None:
        """`path` are the words that lead to it, below `delayq`."""
        forward = click.Option(
            ["--port-forward", "forwarded"],
            is_flag=True,
            help="Reach Redis by kubectl port-forward, not from within a pod.",
        )
        namespace = click.Option(
            ["--redis-namespace"],
            metavar="NAMESPACE",
            help="Let port-forward connect to Redis' Service there, if it is not in the queue's namespace.",
        )
        own = [_param(each) for each in original.params if each.name not in LEFT_OUT]
        about = about.replace("delayq ", "kubectl dq ")
        super().__init__(path[-1], params=[*own, forward, namespace, *where_params()], help=about)
        self.path = path

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed: the command is to read it again, elsewhere."""
        typed, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[RAW] = typed
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        """Go, and end as the command does."""
        sys.exit(self.go(Kubectl(where_of(ctx)), ctx.meta[RAW], ctx.params))

    def go(self, kubectl: Kubectl, raw: Mapping[str, Any], params: Mapping[str, Any]) -> int:
        """Find the way to Redis, and run the command there."""
        name = str(next(params[each] for each in QUEUE if each in params))
        found = way(
            kubectl,
            name,
            forward=params["forwarded"],
            namespace=params["redis_namespace"],
            hopeless=self.path == ("doctor",),
        )
        known = of_forecast(found.queue) if self.path[0] == "forecast" else {}
        job = remote_command(self, {**known, **raw}, params)
        return by_exec(kubectl, found, job) if found.pod else run(kubectl, found, job)


def _param(original: click.Parameter) -> click.Parameter:
    if original.name in QUEUE:
        return name_param(
            str(original.name), required=original.required, metavar="NAME" if original.required else "[NAME]"
        )
    return copy.copy(original)


def of_forecast(queue: Object) -> dict[str, str]:
    """Return what the operator has learnt, as options of the CLI; options that the user types override it.

    The number of workers is among them: the document in the pods leaves it out.
    """
    spec, scaling = queue["spec"], queue.get("status", {}).get("scaling") or {}
    replicas = spec.get("worker", {}).get("replicas")
    found = {"most": str(replicas)} if replicas is not None and spec.get("autoscaling") is None else {}
    # A leadTimeSeconds of the document is in force, and not what was learnt.
    told = (spec.get("autoscaling") or {}).get("leadTimeSeconds")
    if scaling.get("handlerMilliseconds"):
        found["handler_ms"] = f"{scaling['handlerMilliseconds']}ms"
    if scaling.get("leadSeconds") and told in (None, "auto"):
        found["lead_ms"] = f"{scaling['leadSeconds']}s"
    return found
