"""The options that kubectl has too: which cluster, which namespace, as whom. Before a command or after its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.cli.kubectl.kubectl import Kubectl, Where

if TYPE_CHECKING:
    from collections.abc import Callable


def where_of(ctx: click.Context) -> Where:
    """Return what was said so far, by the group's options and by the command's."""
    return ctx.find_root().ensure_object(Where)


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(where_of(ctx), str(param.name), value)


def where_params() -> list[click.Parameter]:
    """Return the options; the last one said wins."""
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
    """Give a command kubectl's options, and call it with a Kubectl that has them."""

    def called(*args: Any, **extra: Any) -> Any:  # noqa: ANN401 -- the command's own options
        return command(Kubectl(where_of(click.get_current_context())), *args, **extra)

    called.__doc__, called.__name__ = command.__doc__, command.__name__
    params = [*getattr(command, "__click_params__", []), *reversed(where_params())]
    called.__click_params__ = params  # type: ignore[attr-defined] # where click's own decorators leave them
    return called
