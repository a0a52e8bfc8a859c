"""NAME on the command line, and its completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.cli.kubectl.kubectl import Kubectl
from delayq.cli.kubectl.options import where_of
from delayq.cli.kubectl.queues import KIND

if TYPE_CHECKING:
    from collections.abc import Callable


def names_there(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a DelayQueue; without a cluster, there are no candidates."""
    try:
        answer = Kubectl(where_of(ctx)).ask("get", KIND, "--output=name")
    except click.ClickException:
        return []
    found = (line.rpartition("/")[2] for line in answer.out.splitlines())
    return [name for name in found if name.startswith(incomplete)]


def name_param(name: str = "name", **extra: Any) -> click.Argument:  # noqa: ANN401 -- click's own
    """Return NAME."""
    return click.Argument([name], metavar=extra.pop("metavar", "NAME"), shell_complete=names_there, **extra)


def name_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command NAME."""
    return click.argument("name", metavar="NAME", shell_complete=names_there)(command)
