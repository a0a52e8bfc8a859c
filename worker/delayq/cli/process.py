"""What the commands of pods share: their options. Each process is started from the document alone.

Not here: the commands. Each has a module of its own, so that a process imports what it runs and nothing of the others.
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
        "--port", type=PORT, default=8080, show_default=True, help="Their port; 0 takes a free one."
    ),
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Where probes and metrics listen; * is every address, of IPv4 and IPv6.",
    ),
    click.option("--redis", metavar="URL", envvar="DELAYQ_REDIS_URL", help="Instead of spec.redis."),
    click.option("--config", default=CONFIG_FILE, show_default=True, help="The DelayQueue document."),
)
"""Give a command the options that all processes share."""


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
    """Set up logs, read the document, and return what the process is started with."""
    logs.configure(log_format, log_level)
    queue = read(config)
    directory = secrets_dir()
    address = Address.of(queue.spec.redis, directory, url=redis)
    return Setting(queue, address, directory, host, port, horizons_port)
