"""Options of scanner, worker, reaper and erase.

Each command has its own module, so that a process imports only the code that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from delayq.cli.inputs import LOG_LEVEL, PORT, options
from delayq.client.document import read
from delayq.connection import Address
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.processes.runtime import Setting
from delayq.service import logs

if TYPE_CHECKING:
    from delayq.service.logs import LogFormat


process_options = options(
    click.option("--log-level", type=LOG_LEVEL, default="info", show_default=True),
    click.option("--log-format", type=click.Choice(["json", "console"]), default="json", show_default=True),
    click.option(
        "--port",
        type=PORT,
        default=8080,
        show_default=True,
        help="Port of probes and metrics; 0: any free port.",
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address of probes and metrics; * listens on every address, IPv4 and IPv6.",
    ),
    click.option(
        "--redis", metavar="URL", envvar="DELAYQ_REDIS_URL", help="Redis to use instead of spec.redis."
    ),
    click.option("--config", default=CONFIG_FILE, show_default=True, help="The DelayQueue document."),
)
"""Add the options that all processes share."""


def setting_of(
    *,
    config: str,
    redis: str | None,
    host: str,
    port: int,
    log_format: LogFormat,
    log_level: str,
    horizons_port: int | None = None,
) -> Setting:
    """Configure logging, read the document, and return the process' settings."""
    logs.configure(log_format, log_level)
    queue = read(config)
    directory = secrets_dir()
    address = Address.of(queue.spec.redis, directory, url=redis)
    return Setting(queue, address, directory, host, port, horizons_port)
