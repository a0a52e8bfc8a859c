"""delayq scanner, worker, reap and erase: what runs in the pods. Each is started from the document and nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import FAILED, Wrong, errors_as_exits
from delayq.cli.words import clean
from delayq.client.base import secrets_dir
from delayq.client.document import read
from delayq.connection import Address
from delayq.contract.files import CONFIG_FILE
from delayq.processes.runtime import Setting, run_eraser, run_reaper, run_scanner, run_worker
from delayq.service import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.service.logs import LogFormat

_PORT = click.IntRange(0, 65535)
PATIENCE_SECONDS = 60.0  # a Redis that restarts with much data to load takes that long
REAP_SECONDS = 55.0  # a CronJob starts one every minute, and Forbid keeps two from overlapping


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that all processes share."""
    for option in (
        click.option("--config", default=CONFIG_FILE, show_default=True, help="The DelayQueue document."),
        click.option(
            "--redis",
            metavar="URL",
            envvar="DELAYQ_REDIS_URL",
            help="Instead of spec.redis.",
        ),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Where probes and metrics listen; * is every address, of IPv4 and IPv6.",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=8080,
            show_default=True,
            help="Their port; 0 takes a free one.",
        ),
        click.option(
            "--log-format", type=click.Choice(["json", "console"]), default="json", show_default=True
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


@click.command()
@_options
@click.option(
    "--horizons-port",
    type=click.IntRange(0, 65535),
    envvar="DELAYQ_HORIZONS_PORT",
    show_envvar=True,
    help="Where it answers /metrics?horizon=…, for the operator alone; absent: nowhere.",
)
def scanner(**options: Any) -> None:  # noqa: ANN401 -- click's, named in _options
    """Wake workers when tasks fall due, take back the leases of dead ones, export what the queue holds."""
    with errors_as_exits():
        run_scanner(_setting(**options))


@click.command()
@_options
def worker(**options: Any) -> None:  # noqa: ANN401 -- as above
    """Claim due tasks and run the document's handler. SIGTERM drains; a second one hands back at once."""
    with errors_as_exits():
        run_worker(_setting(**options))


@click.command()
@_options
@click.option(
    "--seconds", default=REAP_SECONDS, show_default=True, help="How long to sweep; 0: until SIGTERM."
)
def reap(seconds: float, **options: Any) -> None:  # noqa: ANN401 -- as above
    """Sweep for expired leases, reconcile the indexes, purge dead letters past their retention."""
    with errors_as_exits():
        run_reaper(_setting(**options), seconds or None)


@click.command()
@_options
@click.option(
    "--patience",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=PATIENCE_SECONDS,
    show_default=True,
    help="How long to try while Redis cannot be reached, or while the queue is still in use.",
)
@click.option("--yes", is_flag=True, help="Do not ask, which is done on a terminal only.")
def erase(patience: float, *, yes: bool, **options: Any) -> None:  # noqa: ANN401 -- as above
    """Delete all of a queue from Redis, dead letters too; there is no way back.

    The purge Job of a DelayQueue with deletionPolicy Delete runs this. Stop workers, scanners and reapers before:
    what they or clients write meanwhile is deleted, too. Exits with 0 when nothing is left.
    """
    with errors_as_exits():
        setting = _setting(**options)
        if not yes and sys.stdin.isatty():
            question = (
                f"delete every task of queue {setting.queue.queue} in Redis at {setting.address.where}?"
            )
            if not click.confirm(clean(question), err=True):
                raise Wrong("nothing changed", code=FAILED)
        run_eraser(setting, patience)


def _setting(
    *,
    config: str,
    redis: str | None,
    host: str,
    port: int,
    log_format: LogFormat,
    log_level: str,
    horizons_port: int | None = None,
) -> Setting:
    logs.configure(log_format, log_level)
    queue = read(config)
    directory = secrets_dir()
    address = Address.of(queue.spec.redis, directory, url=redis)
    return Setting(queue, address, directory, host, port, horizons_port)
