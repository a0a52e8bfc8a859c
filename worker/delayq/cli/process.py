"""Options of scanner, worker, reaper and erase. Scanner and reaper may serve several queues.

Each command has its own module, so that a process imports only the code that it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delayq.cli.inputs import LOG_LEVEL, PORT, options
from delayq.client.document import chosen, read_all
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.errors import InvalidDocument
from delayq.processes.runtime import Setting
from delayq.service import logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.service.logs import LogFormat


_QUEUE_HELP = "Only the queue of this name, if the file describes several."

_common = (
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
)
process_options = options(
    *_common,
    click.option("--config", default=CONFIG_FILE, show_default=True, help="The DelayQueue document."),
    click.option("--queue", metavar="NAME", help=_QUEUE_HELP),
)
"""Add the options of a process that serves one queue."""

queues_options = options(
    *_common,
    click.option(
        "--config",
        multiple=True,
        default=[CONFIG_FILE],
        show_default=True,
        help="A file of DelayQueue documents. Repeat it to serve the queues of several files.",
    ),
    click.option("--queue", metavar="NAME", multiple=True, help="Only the queues of these names. Repeat it."),
)
"""Add the options of a process that can serve several queues."""


def setting_of(*, config: str, queue: str | None, **others: Any) -> Setting:  # noqa: ANN401 -- those of settings_of
    """Configure logging, read the document, and return the process' settings."""
    found = settings_of(config=[config], queue=[] if queue is None else [queue], **others)
    if len(found) > 1:
        names = ", ".join(each.queue.queue for each in found)
        raise InvalidDocument(
            f"{config}: expected one document of kind DelayQueue, found {len(found)}; choose by --queue: {names}"
        )
    return found[0]


def settings_of(
    *,
    config: Sequence[str],
    queue: Sequence[str],
    redis: str | None,
    host: str,
    port: int,
    log_format: LogFormat,
    log_level: str,
    horizons_port: int | None = None,
) -> list[Setting]:
    """Configure logging, read the documents, and return the settings of each queue."""
    logs.configure(log_format, log_level)
    directory, found = secrets_dir(), []
    for _, name, document in chosen(read_all(config), queue):
        found.append(Setting(document, redis, directory, host, port, horizons_port, name))
    return found
