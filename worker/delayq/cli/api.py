"""delayq api: what belongs to the HTTP API of a queue."""

from __future__ import annotations

import click

from delayq.api.access.named_tokens import hash_of, new_token


@click.group()
def api() -> None:
    """Credentials of the HTTP API."""


@api.command()
def token() -> None:
    """Print a new token for the HTTP API, and the SHA-256 of it.

    Give the token to the caller: it is stored nowhere. Put the SHA-256 into the Secret of spec.api.tokensSecretRef,
    under the name of the token in spec.api.access. To replace a token, add the new SHA-256 on a line of its own, give
    the new token to the caller, and remove the old line. Running processes read a changed Secret again.
    """
    made = new_token()
    click.echo(f"token: {made}\nsha256: {hash_of(made)}")
