"""Check whether a worker can start with the document's handler: the import, the command on PATH, mounted files."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq import guards, handlers
from delayq.cli.doctor.findings import Finding, failed, invalid, ok, warning
from delayq.client.document import Document, named
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.errors import InvalidDocument
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.credentials import Credentials
from delayq.handlers.importing import ModuleMissing
from delayq.handlers.routing import RoutingHandler
from delayq.service import extras

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.target import Target
    from delayq.contract import DelayQueue
    from delayq.guards.sql.guard import SqlGuard

NAME: Final = "handler"
BESIDE: Final = (
    "workers cannot start: run this where they run, with the code beside the document or on PYTHONPATH"
)
CORRECT: Final = "workers cannot start: correct the document"
CODE: Final = "workers cannot start: correct the code"
FILES: Final = "credentials"
WAITS: Final = "until then workers claim nothing, and the check of expired leases fails"
THERE: Final = "is it mounted where workers run? delayq doctor in a worker's pod says so"
CALLS_THE_CHECK: Final = {"DELAYQ_HORIZONS_PORT", "DELAYQ_REAPER"}
"""The operator sets the first one in a scanner's pod and the second one in a reaper's."""


def handler(target: Target) -> Iterator[Finding]:
    """Check the handler as a starting worker does. Do not call an HTTP service.

    Its code is absent where the document is mounted: in a scanner's pod.
    """
    document, path = target.document, target.path
    if document is None or path is None or path == Path(CONFIG_FILE):
        return
    local = [each for each in document.spec.handler.each if each.http is None]
    if not local:
        return
    beside, where = str(path.absolute().parent), ""
    error = _error(document)  # as `delayq worker` in this directory
    if error is not None and any(each.python for each in local) and beside not in sys.path:
        sys.path.insert(0, beside)  # as `delayq run`
        error = _error(document)
        where = f", found only beside the document: start delayq worker in {beside}"
    if error is not None:
        yield invalid(NAME, named(error, Document(path, str(path), document)), _cure(error))
        return
    targets = (
        f"{each.python.target}{where}" if each.python else f"{each.exec.command[0]} is on the PATH"  # type: ignore[union-attr] # one of three
        for each in local
    )
    yield ok(NAME, ", ".join(targets))


def files(target: Target) -> Iterator[Finding]:
    """Check the mounted files of HTTP services; in a pod those that are mounted there.

    They may be elsewhere if only Redis is given.
    """
    document = target.document
    if document is None:
        return
    services = document.spec.http_services
    if target.path == Path(CONFIG_FILE):  # scanners and reapers call the check, workers the handlers
        checks = not CALLS_THE_CHECK.isdisjoint(os.environ)
        services = (each for each in services if each[0].startswith("spec.recovery") == checks)
    made = [Credentials(spec, field=field, secrets_dir=secrets_dir()) for field, spec in services]
    lacks = [why for each in made for why in each.lacks().values()]
    if not lacks and any(each.files for each in made):
        yield ok(FILES, "the mounted files of HTTP services can be read")
    for why in lacks:
        yield warning(FILES, why, THERE) if target.source == "--redis" else failed(FILES, why, WAITS)


def _cure(error: InvalidDocument) -> str:
    """Return what makes workers start: a package, other code, another directory, or another document."""
    cause = error.__cause__
    if isinstance(error, ModuleMissing) or cause is None:
        return BESIDE if isinstance(error, HandlerSetupError) else CORRECT
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        package = extras.BROUGHT_BY.get(
            cause.name.partition(".")[0], f"the package of the module {cause.name}"
        )
        return f"workers cannot start: install {package} where they run, or correct the import"
    extra = extras.NAMED.search(str(cause))
    return f"workers cannot start: install {extra[0]} where they run" if extra else CODE


def _error(document: DelayQueue) -> InvalidDocument | None:
    """Return why a worker cannot start with the handler."""
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the findings
            asyncio.run(_started(document))
    except InvalidDocument as error:
        return error
    return None


async def _started(document: DelayQueue) -> None:
    made = handlers.build(document, secrets_dir=secrets_dir())
    covered, sql_guard = made.coverage(document.spec.guard), _sql_guard(document)
    if sql_guard is not None:
        made.under(sql_guard, covered)
        await sql_guard.close()
    parts = made.handlers if isinstance(made, RoutingHandler) else (made,)
    for each, spec in zip(parts, document.spec.handler.each, strict=True):
        if spec.http is None:
            await each.start()
            await each.close()


def _sql_guard(document: DelayQueue) -> SqlGuard | None:
    """Return the SQL guard of the document; None for none, or if it cannot be made: the check `guard` says why."""
    spec = document.spec.guard
    if spec is None or spec.sql is None or extras.lacking(*extras.SQL):
        return None
    try:
        return guards.sql_kind(spec).of(document, None, secrets_dir=secrets_dir(), apart=False)
    except InvalidDocument:
        return None
