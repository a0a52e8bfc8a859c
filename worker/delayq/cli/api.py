"""delayq api."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import FAILED, USAGE, CommandError, errors_as_exits
from delayq.cli.inputs import PORT, examples
from delayq.cli.process import queues_options, settings_of
from delayq.processes.api import Listen, run_api
from delayq.service import extras

if TYPE_CHECKING:
    from delayq.api.calls import Check
    from delayq.client.encoding import NewTask
    from delayq.processes.runtime import Setting


@click.command(
    epilog=examples("delayq api orders.yaml", "delayq api orders.yaml --api-port 8090 --port 9103")
)
@queues_options
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
def api(
    *,
    api_port: int | None,
    api_host: str,
    allowed_hosts: tuple[str, ...],
    check_arguments: bool,
    unauthenticated: bool,
    **options: Any,  # noqa: ANN401 -- click's, named in queues_options
) -> None:
    """Serve the HTTP API of a queue.

    A program in any language can schedule, read, cancel and reschedule tasks, and operate the queue, with HTTP and
    JSON. spec.api says who may do what. Without it, the API listens on a loopback address only, and takes
    every request.

    One API serves one queue. `delayq api-token` makes a token for a caller.
    """
    if missing := extras.lacking("httptools", "uvloop"):
        raise CommandError(missing, code=FAILED)
    with errors_as_exits():
        settings = settings_of(**options)
        if settings[1:]:
            names = ", ".join(each.queue.metadata.name for each in settings)
            raise CommandError(f"expected one queue, got {names}", "choose it with --queue NAME", USAGE)
        [setting] = settings
        listen = Listen(
            host=api_host,
            port=8090 if api_port is None else api_port,
            allowed_hosts=allowed_hosts,
            unauthenticated=unauthenticated,
            any_free_port=api_port is None,
        )
        run_api(setting, listen, _checker(setting) if check_arguments else _unchecked)


def _checker(setting: Setting) -> Check:
    from delayq.cli.app_check import checker  # noqa: PLC0415 -- an App's modules take 4 MB

    return checker(setting.queue, Path(setting.document.path))


def _unchecked(_task: NewTask) -> None:
    """Take every task: without the App, its kinds and arguments are not known."""
