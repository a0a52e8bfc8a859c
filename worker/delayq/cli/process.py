"""Options of scanner, worker, reaper and erase. All but erase may serve several queues.

Each command has its own module, so that a process imports only the code that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from delayq.cli.inputs import DOCUMENT, LOG_LEVEL, PORT, options
from delayq.client.document import chosen, read_all
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.processes.runtime import Setting
from delayq.service import logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delayq.service.logs import LogFormat


process_options = options(
    click.option("--log-level", type=LOG_LEVEL, default="info", show_default=True),
    click.option("--log-format", type=click.Choice(["json", "console"]), default="json", show_default=True),
    click.option(
        "--port",
        metavar="PORT",
        type=PORT,
        default=8080,
        show_default=True,
        help="Port of probes and metrics; 0: any free port.",
    ),
    click.option(
        "--host",
        metavar="ADDRESS",
        default="127.0.0.1",
        show_default=True,
        help="Address of probes and metrics; * listens on every address, IPv4 and IPv6.",
    ),
    click.option(
        "--redis",
        metavar="URL",
        envvar="DELAYQ_REDIS_URL",
        show_envvar=True,
        help="Redis to use instead of spec.redis.",
    ),
)
"""Add the options of every process."""

queues_options = options(
    click.argument("documents", metavar="[DOCUMENT...]", nargs=-1, type=DOCUMENT),
    process_options,
    click.option("--queue", metavar="NAME", multiple=True, help="Only the queues of these names. Repeat it."),
)
"""Add the documents and options of a process that can serve several queues."""


def settings_of(
    *,
    documents: Sequence[Path],
    queue: Sequence[str],
    redis: str | None,
    host: str,
    port: int,
    log_format: LogFormat,
    log_level: str,
    horizons_port: int | None = None,
) -> list[Setting]:
    """Configure logging, read the documents or the mounted one, and return the settings of each queue."""
    logs.configure(log_format, log_level)
    found = chosen(read_all(documents or [CONFIG_FILE]), queue)
    return [Setting(each, redis, secrets_dir(), host, port, horizons_port) for each in found]
