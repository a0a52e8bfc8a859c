"""Open the guard that `delayq guard` names, and query it. The commands are in guard.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from delayq.cli.exits import FAILED, INVALID, UNAVAILABLE, Wrong
from delayq.cli.inputs import options
from delayq.cli.target import document_of
from delayq.client.document import read
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.errors import Bury, GuardBusy, GuardUnavailable, InvalidDocument
from delayq.service import extras

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.contract import DelayQueue
    from delayq.guards.sql.guard import SqlGuard

T = TypeVar("T")
VARIABLE: Final = "DELAYQ_DATABASE_URL"
HINT: Final = "is the URL in the Secret right, and may this machine connect? --database URL takes another one"
KEEPS: Final = "sqlUnique, sqlPessimistic or sqlOptimistic, which keep a table"


database_option = click.option(
    "--database", metavar="URL", help=f"Instead of the guard's databaseSecretRef; or ${VARIABLE}."
)
document_options = options(
    click.argument("queue", metavar="[QUEUE]", required=False),
    click.option(
        "--config", metavar="PATH", help=f"The same as QUEUE.  [default: {CONFIG_FILE}, where it is]"
    ),
)
"""Give a command QUEUE, which may be left out where the document is mounted, and --config, which says the same."""


def found(queue: str | None, config: str | None = None) -> DelayQueue | None:
    """Return the document: QUEUE's, --config's, or the one that is mounted; None when there is none of them."""
    if queue is not None and config is not None:
        raise Wrong("expected QUEUE or --config, got both")
    if queue is not None:
        return document_of(queue, "which names the guard")[1]
    return read(config or CONFIG_FILE) if config or Path(CONFIG_FILE).is_file() else None


def of_url(url: str | None, queue: str | None = None) -> SqlGuard | None:
    """Return the guard of a database that is named, and of no document; None when none is."""
    text = url or os.environ.get(VARIABLE)
    if not text:
        return None
    need_sqlalchemy()
    from delayq.guards import SqlUnique  # noqa: PLC0415 -- needs an extra

    try:
        return SqlUnique(text, queue=queue)
    except InvalidDocument as error:
        raise InvalidDocument(f"{'--database' if url else '$' + VARIABLE}: {error}") from None


def of_document(document: DelayQueue, url: str | None, *, own: bool = False) -> SqlGuard:
    """Return a document's guard; with `own`, a document without one is enough for a database that is named.

    Its guard is then one in the user's code, with the table that all of them have.
    """
    spec = document.spec.guard
    if spec is None or spec.sql is None:
        made = of_url(url, document.queue) if own else None
        if made is None:
            hint = "for a guard in your own code, give --database URL" if own else ""
            raise Wrong(f"spec.guard: expected {KEEPS}; this document has none of them", hint, INVALID)
        return made
    need_sqlalchemy()
    from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique  # noqa: PLC0415 -- needs an extra

    kind = SqlUnique if spec.sql_unique else SqlPessimistic if spec.sql_pessimistic else SqlOptimistic
    guard: SqlGuard = kind.of(document, None, secrets_dir=secrets_dir(), apart=True, url=url)
    return guard


def need_sqlalchemy() -> None:
    """Wrong when the extra is not installed."""
    if said := extras.lacking(*extras.SQL):
        raise Wrong(f"an SQL guard cannot be used: {said}", code=FAILED)


def place(guard: SqlGuard) -> str:
    """Say where the database is; of a file, the absolute path: a relative one depends on the working directory."""
    kind, slashes, path = guard.where.partition(":///")
    return f"{kind}{slashes}{Path(path).absolute()}" if kind == "sqlite" and path else guard.where


def ask(guard: SqlGuard, step: Callable[[], Awaitable[T]]) -> T:
    """Do something with the guard, and let go of it; what is wrong becomes a sentence."""

    async def run() -> T:
        try:
            return await step()
        except (GuardBusy, GuardUnavailable, Bury):
            raise
        except Exception as error:
            await _explain(guard, error)
            raise
        finally:
            await guard.close()

    try:
        return asyncio.run(run())
    except (GuardBusy, GuardUnavailable) as error:
        raise Wrong(str(error), HINT, UNAVAILABLE) from None
    except Bury as error:  # the statement cannot be asked about this task
        raise Wrong(str(error), "give --payload '{…}', the task's payload") from None


async def _explain(guard: SqlGuard, error: Exception) -> None:
    """Wrong, if the worker's own look at its guard finds what is wrong, too: a statement, a table, rights."""
    try:
        await guard.check()
    except GuardUnavailable as found_too:
        raise Wrong(f"guard at {found_too.where}: {found_too.why}", "", INVALID) from error
