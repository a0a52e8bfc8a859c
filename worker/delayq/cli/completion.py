"""delayq completion: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

WHERE = {
    "bash": 'eval "$(delayq completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(delayq completion zsh)" in ~/.zshrc',
    "fish": "delayq completion fish > ~/.config/fish/completions/delayq.fish",
}


@click.command(help="Print the script for completion in a shell.\n\n\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(list(WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "delayq", "_DELAYQ_COMPLETE").source())
