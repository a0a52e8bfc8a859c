"""delayq guard: the SQL guards' table. Not here: what guards do with it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from delayq.cli import views
from delayq.cli.exits import FAILED, INVALID, NOT_FOUND, REFUSED, UNAVAILABLE, Wrong, errors_as_exits
from delayq.cli.inputs import strict_json
from delayq.cli.output import Output, emit, output_option
from delayq.cli.words import tasks
from delayq.contract.files import CONFIG_FILE
from delayq.document import read
from delayq.errors import GuardBusy, GuardUnavailable
from delayq.message import JSON_TYPE, Task
from delayq.queue_client import secrets_dir

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.contract import DelayQueue
    from delayq.guards.sql.guard import SqlGuard

C = TypeVar("C", bound="Callable[..., Any]")
T = TypeVar("T")
DIALECTS = ("postgresql", "mysql", "sqlite")
HINT = "is the URL in the Secret right, and may this machine connect? --database URL takes another one"


def _database_option(command: C) -> C:
    return click.option(
        "--database",
        metavar="URL",
        envvar="DELAYQ_DATABASE_URL",
        help="Instead of the guard's databaseSecretRef.",
    )(command)


def _config_option(command: C) -> C:
    return click.option("--config", default=CONFIG_FILE, show_default=True, help="The DelayQueue document.")(
        command
    )


@click.group()
def guard() -> None:
    """Make, look at and tidy the table in which SQL guards remember tasks."""


@guard.command()
@_config_option
@_database_option
def init(config: str, database: str | None) -> None:
    """Make the table delayq_processed, unless it is there; then say whether it is as it should be.

    With --database, no document is needed. The user in the URL has to be allowed to make tables; workers' need not be.
    """
    with errors_as_exits():
        made = (
            _of_url(database)
            if database and not Path(config).is_file()
            else _of_document(read(config), database)
        )

    async def run() -> tuple[bool, list[str]]:
        return await made.install(), await made.problems()

    new, problems = _run(made, run)
    if problems:
        raise Wrong(
            f"the table delayq_processed in {made.where}: {'; '.join(problems)}", "delayq guard ddl", FAILED
        )
    click.echo(f"{'made' if new else 'found'} the table delayq_processed in {made.where}")


@guard.command()
@click.option("--dialect", type=click.Choice(DIALECTS), default=DIALECTS[0], show_default=True)
def ddl(dialect: str) -> None:
    """Print the statements that make the table, for tools that manage a schema. MariaDB's dialect is mysql."""
    _need_sqlalchemy()
    from delayq.guards.sql.table import ddl as statements  # noqa: PLC0415 -- needs an extra

    for statement in statements(dialect):
        click.echo(f"{statement};")


@guard.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("task_id", metavar="ID")
@_database_option
@click.option(
    "--payload", metavar="JSON", default="null", help="For a query with parameters from the payload."
)
@output_option
def seen(queue: str, task_id: str, *, database: str | None, payload: str, output: Output) -> None:
    """Say whether the task has taken effect, as the guard knows it. QUEUE is the path of a DelayQueue document."""
    with errors_as_exits():
        document = read(queue)
        made = _of_document(document, database)
    try:
        strict_json(payload.encode())
    except ValueError as error:
        raise Wrong(f"--payload: expected JSON ({error})") from None
    asked = Task(
        id=task_id,
        queue=document.queue,
        attempt=1,
        token=0,
        due_ms=0,
        scheduled_ms=0,
        body=payload.encode(),
        content_type=JSON_TYPE,
        headers={},
    )
    found = _run(made, lambda: made.seen(asked))
    words = {
        True: "has taken effect",
        False: "has not taken effect",
        None: "may have taken effect, nobody can tell",
    }
    emit(output, views.guarded(task_id, seen=found), f"{task_id} {words[found]}")


@guard.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@_database_option
@click.option("--force", is_flag=True, help="Also of tasks that are done: they may take effect again.")
def forget(queue: str, task_ids: tuple[str, ...], *, database: str | None, force: bool) -> None:
    """Delete what the guard remembers of tasks that began and never said how they ended, so that they may run again.

    QUEUE is the path of a DelayQueue document. With unfinished: Bury, such a task is buried each time that it is
    redriven; find out what it did, and be sure that it does not run any more.
    """
    with errors_as_exits():
        document = read(queue)
        made = _of_document(document, database)

    async def run() -> dict[str, str | None]:
        return {each: await made.forget(document.queue, each, done=force) for each in task_ids}

    states = _run(made, run)
    for each, state in states.items():
        if state == "running" or (state and force):
            click.echo(f"forgot {each}, which was {state}")
    if None in states.values():
        absent = ", ".join(each for each, state in states.items() if state is None)
        raise Wrong(f"the guard knows nothing of {absent}", code=NOT_FOUND)
    if "done" in states.values() and not force:
        done = ", ".join(each for each, state in states.items() if state == "done")
        raise Wrong(
            f"{done}: done already", "--force forgets it all the same: it may take effect again", REFUSED
        )


@guard.command()
@_config_option
@_database_option
def prune(config: str, database: str | None) -> None:
    """Delete the rows of tasks that were done longer ago than retentionSeconds. The reaper does so by itself."""
    with errors_as_exits():
        made = _of_document(read(config), database)

    async def run() -> int:
        total = 0
        while count := await made.prune():
            total += count
        return total

    click.echo(f"deleted the rows of {tasks(_run(made, run))}")


def _of_url(url: str) -> SqlGuard:
    _need_sqlalchemy()
    from delayq.guards import SqlUnique  # noqa: PLC0415 -- needs an extra

    return SqlUnique(url)


def _of_document(document: DelayQueue, url: str | None) -> SqlGuard:
    spec = document.spec.guard
    if spec is None or spec.sql is None:
        expected = "spec.guard: expected sqlUnique, sqlPessimistic or sqlOptimistic, which keep a table"
        raise Wrong(f"{expected}; this document has none of them", code=INVALID)
    _need_sqlalchemy()
    from delayq.guards import SqlOptimistic, SqlPessimistic, SqlUnique  # noqa: PLC0415 -- needs an extra

    kind = SqlUnique if spec.sql_unique else SqlPessimistic if spec.sql_pessimistic else SqlOptimistic
    made: SqlGuard = kind.of(document, None, secrets_dir=secrets_dir(), apart=True, url=url)
    return made


def _need_sqlalchemy() -> None:
    try:
        import_module("delayq.guards.sql.guard")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "delayq":
            raise
        raise Wrong(
            f"delayq guard needs {error.name}", "install delayq[sql] or delayq[mysql]", FAILED
        ) from None


def _run(made: SqlGuard, step: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        try:
            return await step()
        finally:
            await made.close()

    try:
        return asyncio.run(run())
    except (GuardBusy, GuardUnavailable) as error:
        raise Wrong(str(error), HINT, UNAVAILABLE) from None
