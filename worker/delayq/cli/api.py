"""delayq api: the HTTP API of a queue, and what belongs to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from delayq.api.access.named_tokens import hash_of, new_token
from delayq.cli.exits import FAILED, CommandError, errors_as_exits
from delayq.cli.inputs import PORT
from delayq.cli.process import process_options, setting_of
from delayq.service import extras


@click.group(invoke_without_command=True)
@process_options
@click.option(
    "--api-port", type=PORT, help="Port of the API; 0: any free port.  [default: 8090, else a free port]"
)
@click.option(
    "--api-host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the API; * listens on every address, IPv4 and IPv6.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="A name in the header Host to accept besides those of this machine. Repeat it.",
)
@click.option(
    "--check-arguments", is_flag=True, help="Import the App of the document, and check arguments by it."
)
@click.option(
    "--no-authentication",
    "unauthenticated",
    is_flag=True,
    help="Take every request, whatever spec.api says. Only on a loopback address.",
)
@click.pass_context
def api(
    context: click.Context,
    /,
    *,
    api_port: int | None,
    api_host: str,
    allowed_hosts: tuple[str, ...],
    check_arguments: bool,
    unauthenticated: bool,
    **options: Any,  # noqa: ANN401 -- click's, named in process_options
) -> None:
    """Serve the HTTP API of a queue.

    A program in any language can schedule, read, cancel and reschedule tasks, and operate the queue, with HTTP and
    JSON. spec.api says who may do what. Without it, the API listens on a loopback address only, and everyone who
    reaches that may do everything.
    """
    if context.invoked_subcommand is not None:
        return
    if missing := extras.lacking("starlette", "uvicorn", "httptools", "uvloop"):
        raise CommandError(missing, code=FAILED)
    # The command `token` needs none of these.
    from delayq.cli.app_check import checker  # noqa: PLC0415
    from delayq.processes.api import Listen, run_api  # noqa: PLC0415

    with errors_as_exits():
        config = Path(options["config"])
        setting = setting_of(**options)
        listen = Listen(
            host=api_host,
            port=8090 if api_port is None else api_port,
            allowed_hosts=allowed_hosts,
            unauthenticated=unauthenticated,
            any_free_port=api_port is None,
        )
        run_api(setting, listen, checker(setting.queue, config if check_arguments else None))


@api.command()
def token() -> None:
    """Print a new token for the HTTP API, and the SHA-256 of it.

    Give the token to the caller: it is stored nowhere. Put the SHA-256 into the Secret of spec.api.tokensSecretRef,
    under the name of the token in spec.api.access. To replace a token, add the new SHA-256 on a line of its own, give
    the new token to the caller, and remove the old line. Running processes read a changed Secret again.
    """
    made = new_token()
    click.echo(f"token: {made}\nsha256: {hash_of(made)}")
