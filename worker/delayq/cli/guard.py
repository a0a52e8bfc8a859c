"""delayq guard: manage the table of the SQL guards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from delayq.cli import guarded, views
from delayq.cli.exits import FAILED, NOT_FOUND, REFUSED, CommandError, errors_as_exits
from delayq.cli.formats import tasks
from delayq.cli.inputs import examples, strict_json
from delayq.cli.output import Output, emit, note, output_option
from delayq.cli.target import QUEUE, document_of
from delayq.cli.task import kind_option
from delayq.client.encoding import stored_id
from delayq.protocol.envelope import JSON_TYPE, Task
from delayq.protocol.keys import is_occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.contract import DelayQueue
    from delayq.guards.sql.guard import SqlGuard

DIALECTS = ("postgresql", "mysql", "sqlite")
NAMES = "which names the guard"
WORDS = {
    True: "has taken effect",
    False: "has not taken effect",
    None: "may have taken effect: its run did not report an outcome",
}


@click.group()
def guard() -> None:
    """Create, query and prune the table of SQL guards.

    SQL guards record finished tasks in it. QUEUE is the path of a DelayQueue document, or the name of a
    queue that has one. In a pod, init and prune need no QUEUE: they use the mounted document.
    """


@guard.command(
    epilog=examples(
        "delayq guard init queue.yaml",
        "delayq guard init --database postgresql://owner:password@host:5432/shop",
    )
)
@click.argument("queue", type=QUEUE, required=False)
@guarded.database_option
def init(queue: str | None, database: str | None) -> None:
    """Create the table delayq_processed unless it exists, and check its columns.

    With --database, no document is needed. The user of the URL needs the right to create tables; workers' do not.
    """
    with errors_as_exits():
        document = guarded.found(queue)
        made = guarded.of_document(document, database, own=True) if document else guarded.of_url(database)
    if made is None:
        raise CommandError(
            "expected a document or --database URL, got neither", "delayq guard init queue.yaml"
        )

    async def run() -> tuple[bool, list[str]]:
        return await made.install(), await made.problems()

    new, problems = guarded.query(made, run)
    table = f"the table delayq_processed in {guarded.place(made)}"
    if problems:
        raise CommandError(f"{table}: {'; '.join(problems)}", "delayq guard ddl", FAILED)
    click.echo(f"{'created' if new else 'found'} {table}")


@guard.command()
@click.argument("queue", type=QUEUE, required=False)
@click.option(
    "--dialect",
    type=click.Choice(DIALECTS),
    help=f"[default: that of QUEUE's database, {DIALECTS[0]} without QUEUE]",
)
def ddl(queue: str | None, dialect: str | None) -> None:
    """Print the statements that create the table, for schema migration tools. For MariaDB, use mysql."""
    guarded.need_sqlalchemy()
    if dialect is None and queue is not None:
        with errors_as_exits():
            document = document_of(queue, NAMES)[1]
            dialect = guarded.of_document(document, None, own=True).where.partition(":")[0]
    from delayq.guards.sql.table import ddl as statements  # noqa: PLC0415 -- needs an extra

    for statement in statements(dialect or DIALECTS[0]):
        click.echo(f"{statement};")


@guard.command()
@click.argument("queue", type=QUEUE)
@click.argument("task_id", metavar="ID")
@kind_option
@guarded.database_option
@click.option(
    "--payload", metavar="JSON", default="null", help="Payload, if the guard's query has parameters from it."
)
@output_option
def seen(
    queue: str, task_id: str, *, kind: str | None, database: str | None, payload: str, output: Output
) -> None:
    """Show whether a task has taken effect, by the guard's record.

    The effect is unknown if a run started and did not report its end.
    """
    document, made = _asked(queue, database)
    with errors_as_exits():
        stored = stored_id(task_id, kind)
    task = _task(document, stored, payload)

    async def ask() -> tuple[bool | None, str]:
        known = await made.seen(task)
        begun = await made.incomplete_run(task) if known is False else ""
        return (None, begun) if begun else (known, "")

    known, begun = guarded.query(made, ask)
    text = f"{stored}: a run {begun}, or is still running" if begun else f"{stored} {WORDS[known]}"
    emit(output, views.guarded(stored, seen=known), text)
    if known is False and (hint := _without_kind(document, [stored])):
        note(f"note: {hint}")


def _without_kind(document: DelayQueue, ids: Iterable[str]) -> str:
    """Return a hint if an ID has no kind, and the document's handler has kinds; otherwise an empty text."""
    handler = document.spec.handler
    kinds = handler.kinds or (handler.python and handler.python.app)
    bare = [each for each in ids if ":" not in each and not is_occurrence(each)]
    return f"a task with a kind has the ID KIND:{bare[0]}: give its --kind" if kinds and bare else ""


def _asked(queue: str, database: str | None) -> tuple[DelayQueue, SqlGuard]:
    with errors_as_exits():
        document = document_of(queue, NAMES)[1]
        return document, guarded.of_document(document, database, own=True)


def _task(document: DelayQueue, task_id: str, payload: str) -> Task:
    try:
        strict_json(payload.encode())
    except ValueError as error:
        raise CommandError(f"--payload: expected JSON ({error})") from None
    return Task(
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


@guard.command()
@click.argument("queue", type=QUEUE)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@kind_option
@guarded.database_option
@click.option(
    "--force", is_flag=True, help="Also delete rows of finished tasks. These may then take effect again."
)
def forget(
    queue: str, task_ids: tuple[str, ...], *, kind: str | None, database: str | None, force: bool
) -> None:
    """Delete the guard's record of incomplete runs, so that their tasks can run again.

    With onIncompleteRun: Bury, the guard buries such a task after each redrive. First find out what the incomplete run
    did, and make sure that it no longer runs.
    """
    document, made = _asked(queue, database)
    with errors_as_exits():
        stored = dict.fromkeys(stored_id(each, kind) for each in task_ids)

    async def run() -> dict[str, str | None]:
        return {each: await made.forget(document.queue, each, done=force) for each in stored}

    states = guarded.query(made, run)
    for each, state in states.items():
        if state == "running" or (state and force):
            click.echo(f"forgot {each}, which was {state}")
    if None in states.values():
        absent = [each for each, state in states.items() if state is None]
        hint = _without_kind(document, absent)
        raise CommandError(f"the guard has no record of {', '.join(absent)}", hint, NOT_FOUND)
    if "done" in states.values() and not force:
        done = ", ".join(each for each, state in states.items() if state == "done")
        raise CommandError(
            f"{done}: already finished",
            "--force deletes the record anyway: the task may take effect again",
            REFUSED,
        )


@guard.command()
@click.argument("queue", type=QUEUE, required=False)
@guarded.database_option
def prune(queue: str | None, database: str | None) -> None:
    """Delete the rows of tasks that finished more than retentionSeconds ago. The reaper also does this."""
    with errors_as_exits():
        document = guarded.found(queue)
        if document is None:
            raise CommandError(
                "expected a document, which sets retentionSeconds", "delayq guard prune queue.yaml"
            )
        made = guarded.of_document(document, database)

    async def run() -> int:
        total = 0
        while count := await made.prune():
            total += count
        return total

    click.echo(f"deleted the rows of {tasks(guarded.query(made, run))}")
