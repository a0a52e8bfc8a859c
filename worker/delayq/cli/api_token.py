"""delayq api-token."""

from __future__ import annotations

import click

from delayq.api.access.named_tokens import hash_of, new_token
from delayq.cli.inputs import examples


@click.command("api-token", epilog=examples("delayq api-token"))
def api_token() -> None:
    """Print a new token for the HTTP API, and its SHA-256.

    Give the token to the caller: it is stored nowhere. Put the SHA-256 into the Secret of spec.api.tokensSecretRef,
    under the name of the token in spec.api.access.

    To replace a token, add the new SHA-256 on a second line, give the new token to the caller, and remove the old
    line. Running processes read a changed Secret again.
    """
    made = new_token()
    click.echo(f"token: {made}\nsha256: {hash_of(made)}")
