"""delayq run: all processes of one queue or several on this machine."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from delayq.cli.app_check import schedule_checker
from delayq.cli.cron import calendar
from delayq.cli.exits import FAILED, CommandError, errors_as_exits
from delayq.cli.inputs import DOCUMENT, DURATION, LOG_LEVEL, examples
from delayq.cli.target import URL_VARIABLE
from delayq.client.document import read_files
from delayq.errors import InvalidDocument
from delayq.local import supervisor
from delayq.local.datadir import LOOPBACK
from delayq.local.errors import CannotRun
from delayq.local.plan import SPEC, Plan, Served, check_files, check_redis
from delayq.local.reload import Sources
from delayq.service import extras


@click.command(
    epilog=examples("delayq run queue.yaml", "delayq run queue.yaml nightly.yaml --reload --workers 2")
)
@click.argument("documents", metavar="DOCUMENT...", nargs=-1, required=True, type=DOCUMENT)
@click.option(
    "--redis",
    "redis_url",
    metavar="URL",
    envvar=URL_VARIABLE,
    help="Use this Redis instead of an embedded one; `spec`: the one of spec.redis.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the embedded Redis' data.  [default: .delayq beside DOCUMENT]",
)
@click.option(
    "--scanners",
    metavar="N",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    help="Scanner processes, for each Redis.",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(0, 100),
    help="Worker processes of each queue.  [default: spec.worker.replicas]",
)
@click.option("--reaper/--no-reaper", default=True, help="Run a reaper.  [default: yes]")
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65000),
    metavar="FIRST",
    help="Port of the first process' metrics and probes; the next process has the next port.  [default: free ports]",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=LOOPBACK,
    show_default=True,
    help="Address of the embedded Redis, metrics and probes, for example for containers; * listens on every address.",
)
@click.option(
    "--api/--no-api",
    default=True,
    help="Serve the HTTP API of each queue on 127.0.0.1, without authentication. Needs delayq[api].  [default: yes]",
)
@click.option(
    "--api-port",
    type=click.IntRange(1, 65000),
    metavar="FIRST",
    help="Port of the first queue's API; the next queue has the next port.  [default: 8090, else a free port]",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Start the processes again, but not Redis, when code or a document changes. Needs delayq[reload].",
)
@click.option(
    "--status-interval",
    type=DURATION,
    help="Time between two status reports, 100ms or more.  [default: 1s on a terminal, else 5s]",
)
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", show_default=True)
@click.option(
    "--log-level",
    type=LOG_LEVEL,
    default="warning",
    show_default=True,
)
def run(
    documents: tuple[Path, ...],
    *,
    redis_url: str | None,
    workers: int | None,
    status_interval: int | None,
    reload: bool,
    api: bool,
    api_port: int | None,
    **options: Any,  # noqa: ANN401 -- fields of Plan
) -> None:
    """Run the queues of these files on this machine.

    It starts scanner, worker, reaper, HTTP API, and an embedded Redis unless given a URL. A file may have several
    documents, separated by ---, and DelaySchedules may have files of their own. All queues on one Redis share a
    scanner and a reaper, which makes a pass every five minutes. A queue has workers of its own, unless it has an HTTP
    handler, no guard and one worker: such queues share one. Each queue has an HTTP API of its own.

    At its start, it stores the DelaySchedules of the files and the schedules of @app.schedule, and deletes those that
    an earlier run has stored and that are gone.

    A Secret that the document names is a directory below $DELAYQ_SECRETS_DIR, and a key is a file in it.

    The command uses spec.redis only with --redis spec. For a Cluster with TLS: --redis
    'rediss+cluster://user:password@a:6379,b:6379?ssl_ca_certs=ca.crt'. For Sentinels: --redis
    'redis+sentinel://user:password@a:26379,b:26379/mymaster/0'. The embedded Redis is for development only. It
    keeps tasks in the data directory until the next run, which has the same port and password. With --metrics-port
    9100, Prometheus scrapes workers from 127.0.0.1:9100 on, in the order of the documents, then scanners. The first
    Ctrl-C lets running handlers finish; the second one releases their tasks.

    --reload watches the Python files below the current directory and the directories of the documents, and the
    documents. If the new code can be imported, running handlers finish before it is used. Otherwise the command prints
    the error, and the old processes go on.
    """
    redis_option = "" if URL_VARIABLE in os.environ or redis_url == SPEC else " --redis URL"
    if missing := extras.lacking("aiohttp", "uvloop"):  # the child processes need them
        raise CommandError(missing, code=FAILED)
    lacks_api = extras.lacking("uvicorn", "httptools")
    if api_port is not None and lacks_api:
        raise CommandError(lacks_api, code=FAILED)
    if reload and (missing := extras.lacking("watchfiles")):
        raise CommandError(missing, code=FAILED)
    options |= {
        "api": None if api and lacks_api else api,
        "api_port": api_port,
        "redis_url": redis_url,
        "workers": workers,
        "status_interval": status_interval,
    }
    with errors_as_exits(f"delayq doctor {documents[0]}{redis_option} checks each requirement"):
        plan = _plan(documents, imports=True, **options)
        _run(plan, Sources(documents, partial(_plan_again, documents, **options)) if reload else None)


def _plan(
    documents: tuple[Path, ...],
    *,
    imports: bool,
    redis_url: str | None,
    workers: int | None,
    status_interval: int | None,
    **options: Any,  # noqa: ANN401 -- fields of Plan
) -> Plan:
    """Read the files, and check all that needs no process.

    `imports`: tasks of schedules by their App, too; without, those of an App are not checked.
    """
    files = read_files(documents)
    if redis_url == SPEC:
        check_redis(files.queues)
    check_files(files.queues)
    recurring = files.by_queue()
    alone = len({Path(each.path).absolute().parent for each in files.queues}) == 1
    for each in files.queues:
        if there := recurring[each.queue.metadata.name]:
            # Apps of two directories may have modules of one name: this process imports those of one directory.
            check = schedule_checker(each.queue, Path(each.path) if alone and imports else None)
            python = each.queue.spec.handler.python
            unknown = not imports and python is not None and python.app is not None
            for where, schedule in there:
                calendar(where, schedule, None if unknown else check)
    queues = [
        Served(
            document=each,
            workers=each.queue.spec.worker.replicas if workers is None else workers,
            schedules=[schedule for _, schedule in recurring[each.queue.metadata.name]],
        )
        for each in files.queues
    ]
    status_seconds = None if status_interval is None else max(0.1, status_interval / 1000)
    return Plan(queues=tuple(queues), redis_url=redis_url, status_seconds=status_seconds, **options)


def _plan_again(documents: tuple[Path, ...], **options: Any) -> Plan:  # noqa: ANN401 -- those of _plan
    """Read the changed files. This process has the App of before the change, which must not decide on new tasks."""
    try:
        return _plan(documents, imports=False, **options)
    except CommandError as error:
        raise InvalidDocument(str(error)) from error


def _run(plan: Plan, reload: Sources | None) -> None:
    if plan.redis_url is None and plan.directories[1:]:
        files = dict.fromkeys(str(each.document.path) for each in plan.queues)
        raise CommandError(
            f"{', '.join(files)} are in different directories: one Redis has one place for its data",
            "--data-dir DIR names it; or give --redis URL",
        )
    try:
        clean = supervisor.run(plan, reload)
    except CannotRun as error:
        raise CommandError(str(error), error.hint, FAILED) from error
    if not clean:
        sys.exit(FAILED)
