"""Open the guard that `delayq guard` names, and query it. The commands are in guard.py."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from delayq import guards
from delayq.cli.exits import INVALID, UNAVAILABLE, CommandError
from delayq.cli.target import document_of
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
HINT: Final = "is the URL in the Secret right, and may this machine connect? --database URL uses another one"
KEEPS: Final = "sqlUnique, sqlPessimistic or sqlOptimistic, which have a table"


database_option = click.option(
    "--database",
    metavar="URL",
    help=f"Database to use instead of the guard's databaseSecretRef; or ${VARIABLE}.",
)


def found(queue: str | None) -> DelayQueue | None:
    """Return the document of QUEUE, else the mounted one; None without either."""
    if queue is None and not Path(CONFIG_FILE).is_file():
        return None
    return document_of(queue or CONFIG_FILE, "which names the guard")[1]


def of_url(url: str | None, queue: str | None = None) -> SqlGuard | None:
    """Return a guard for a database URL without a document; None without a URL."""
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
    """Return a document's guard. `own`: accept a document without a guard if a database URL is given.

    That is for a guard in the user's code, which uses the same table.
    """
    spec = document.spec.guard
    if spec is None or spec.sql is None:
        made = of_url(url, document.queue) if own else None
        if made is None:
            hint = "for a guard in your own code, give --database URL" if own else ""
            raise CommandError(f"spec.guard: expected {KEEPS}; this document has none of them", hint, INVALID)
        return made
    need_sqlalchemy()
    return guards.sql_kind(spec).of(document, None, secrets_dir=secrets_dir(), apart=True, url=url)


def need_sqlalchemy() -> None:
    """Raise CommandError when the extra is not installed."""
    if missing := extras.lacking(*extras.SQL):
        raise CommandError(f"an SQL guard cannot be used: {missing}", code=INVALID)


def place(guard: SqlGuard) -> str:
    """Return the database's location; the absolute path of a file."""
    kind, slashes, path = guard.where.partition(":///")
    return f"{kind}{slashes}{Path(path).absolute()}" if kind == "sqlite" and path else guard.where


def query(guard: SqlGuard, step: Callable[[], Awaitable[T]]) -> T:
    """Run a step with the guard, and close it; raise errors as CommandError."""

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
        raise CommandError(str(error), HINT, UNAVAILABLE) from None
    except Bury as error:  # the statement needs the payload
        raise CommandError(str(error), "give --payload '{…}', the task's payload") from None


async def _explain(guard: SqlGuard, error: Exception) -> None:
    """Raise CommandError if the worker's own check explains the error: a statement, a table, rights."""
    try:
        await guard.check()
    except GuardUnavailable as found_too:
        raise CommandError(f"guard at {found_too.where}: {found_too.why}", "", INVALID) from error
