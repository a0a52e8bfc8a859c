"""kubectl's options, before or after the name of a command; NAME, and its completion."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.kubectl.kubectl import Kubectl, Where
from delayq.cli.kubectl.queues import KIND

if TYPE_CHECKING:
    from collections.abc import Callable


def where_of(ctx: click.Context) -> Where:
    """Return the options so far, of the group and of the command."""
    return ctx.find_root().ensure_object(Where)


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(where_of(ctx), str(param.name), value)


def where_params() -> list[click.Parameter]:
    """Return the options; the last occurrence wins."""
    texts = (
        (("-n", "--namespace"), "Namespace of the queue.  [default: the context's]"),
        (("--context",), "Context of the kubeconfig.  [default: the current one]"),
        (("--kubeconfig",), "Path of the kubeconfig."),
    )
    return [
        click.Option(names, metavar="TEXT", help=text, expose_value=False, callback=_remember)
        for names, text in texts
    ]


def kubectl_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add kubectl's options to a command, and call it with a Kubectl that uses them."""

    @functools.wraps(command)
    def called(*args: Any, **extra: Any) -> Any:  # noqa: ANN401 -- the command's own options
        return command(Kubectl(where_of(click.get_current_context())), *args, **extra)

    params = [*getattr(command, "__click_params__", []), *reversed(where_params())]
    called.__click_params__ = params  # type: ignore[attr-defined] # as click's own decorators do
    return called


def complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a DelayQueue; without a cluster, there are no candidates."""
    try:
        answer = Kubectl(where_of(ctx)).run("get", KIND, "--output=name")
    except click.ClickException:
        return []
    found = (line.rpartition("/")[2] for line in answer.stdout.splitlines())
    return [name for name in found if name.startswith(incomplete)]


name_argument = click.argument("name", metavar="NAME", shell_complete=complete_name)
