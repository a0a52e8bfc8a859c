"""delayq schedule: one task from the command line, or many from a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from delayq.cli import app_check, inputs, many, views
from delayq.cli.exits import FAILED, CommandError
from delayq.cli.formats import iso, length
from delayq.cli.inputs import examples
from delayq.cli.on_queue import on_queue
from delayq.cli.output import emit, note, output_option
from delayq.client.encoding import NewTask
from delayq.client.enqueue import IfExists
from delayq.protocol.envelope import JSON_TYPE, MAX_KIND_VERSION
from delayq.protocol.results import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from delayq.cli.output import Output
    from delayq.cli.target import TargetClient
    from delayq.client.blocking import SyncClient
    from delayq.protocol.results import Scheduled

ONE_ONLY = {
    "payload": "PAYLOAD",
    "task_id": "--id",
    "delay_ms": "--in",
    "due_ms": "--at",
    "headers": "--header",
    "raw": "--bytes",
    "content_type": "--content-type",
    "kind": "--kind",
    "deadline_ms": "--deadline",
    "debounce_ms": "--debounce",
    "tags": "--tag",
}
"""Parameters of a single task → their options."""


when_options = inputs.options(
    click.option("--in", "delay_ms", type=inputs.DURATION, help="Delay from now, like 30m or 1h30m."),
    click.option("--at", "due_ms", type=inputs.INSTANT, help="Due time, like 2026-12-01T09:00:00Z."),
)
task_options = inputs.options(
    click.argument("payload", required=False),
    when_options,
    click.option(
        "--id",
        "task_id",
        metavar="ID",
        help="ID of the task. With --kind, the stored ID is KIND:ID.  [default: a random ID]",
    ),
    click.option(
        "--header", "headers", type=inputs.HEADER, multiple=True, help="Header of the task; repeatable."
    ),
    click.option("--bytes", "raw", is_flag=True, help="Store the payload as raw bytes, not as JSON."),
    click.option(
        "--content-type", metavar="TYPE", help="Content type of the payload; implies --bytes unless JSON."
    ),
    click.option("--kind", metavar="KIND", help="Kind of the task, for queues with several kinds."),
    click.option(
        "--kind-version",
        "version",
        metavar="N",
        type=click.IntRange(1, MAX_KIND_VERSION),
        default=1,
        show_default=True,
        help="Version of the kind.",
    ),
    click.option(
        "--deadline",
        "deadline_ms",
        type=inputs.LENGTH,
        help="Time after the due time in which the task may start, like 2h.",
    ),
    click.option(
        "--debounce",
        "debounce_ms",
        type=inputs.LENGTH,
        help="With --if-exists debounce: how far repeated calls may move the due time, like 10m.",
    ),
    click.option(
        "--tag", "tags", metavar="TAG", multiple=True, help="Tag of the task; repeatable, at most 8."
    ),
)


@click.command(
    epilog=examples(
        "delayq schedule orders '{\"order\": 7}' --kind remind --in 30m --id 7",
        "delayq schedule orders --many tasks.jsonl --if-exists keep",
    )
)
@on_queue
@task_options
@click.option(
    "--if-exists",
    type=click.Choice(get_args(IfExists)),
    default="reject",
    show_default=True,
    help="What to do if a task with this ID exists.",
)
@click.option(
    "--yes", is_flag=True, help="Skip the confirmation and the warning for a queue that was never used."
)
@app_check.unknown_kind_option
@click.option(
    "--many",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="Schedule the tasks of a file: one JSON object a line.",
)
@output_option
def schedule(
    client: TargetClient,
    *,
    file: BinaryIO | None,
    if_exists: IfExists,
    yes: bool,
    unknown_kind: bool,
    output: Output,
    **task: Any,  # noqa: ANN401 -- named in task_options
) -> None:
    """Store a task. It is due now, or at the time of --in or --at.

    PAYLOAD is JSON, - to read it from stdin, or @FILE. Write -- before a PAYLOAD that starts with a minus sign.

    A line of --many is like {"payload": {"order": 7}, "kind": "remind", "in": "30m", "id": "order-7"}. It may also have
    "kind_version", "tags" (a list), "headers" (an object), "deadline" and "debounce" (durations). Instead of "in", it
    may have "at", "delay_ms" or "due_ms"; instead of "payload", "payload_base64" and "content_type". The command
    accepts the output of dlq export.
    """
    got = [typed for name, typed in ONE_ONLY.items() if task[name] not in (None, (), False)]
    if file is not None and got:
        raise CommandError(
            f"--many: expected no PAYLOAD and no option of a task, got {', '.join(got)}",
            "write these into the file",
        )
    if file is None:
        _check_debounce(if_exists, task["task_id"], task["debounce_ms"], task["delay_ms"])
    unknown = "" if yes else client.unused()
    if unknown and sys.stdin.isatty() and not click.confirm(f"{unknown}. Schedule anyway?", err=True):
        raise CommandError("nothing was stored", code=FAILED)
    check = app_check.checker(client.target.document, client.target.path)
    if unknown_kind:
        client.take_only(None)
    if file is None:
        _one(client, output, check, if_exists=if_exists, **task)
    else:
        many.schedule(client, file, check, if_exists=if_exists, output=output)
    if unknown and not sys.stdin.isatty():
        note(f"warning: {unknown}: is the name right, and do workers serve it? --yes confirms it")


def _check_debounce(
    if_exists: IfExists, task_id: str | None, debounce_ms: int | None, delay_ms: int | None
) -> None:
    """Refuse --debounce and --if-exists debounce without each other, without an ID, and shorter than --in."""
    if if_exists != "debounce":
        if debounce_ms is not None:
            raise CommandError("--debounce: expected --if-exists debounce beside it")
        return
    if debounce_ms is None:
        raise CommandError(
            "--if-exists debounce: expected --debounce beside it, got none",
            "--debounce 10m lets repeated calls move the due time by at most 10m",
        )
    if task_id is None:
        raise CommandError(
            "--if-exists debounce: expected --id beside it, which repeated calls have in common"
        )
    if delay_ms is not None and debounce_ms < delay_ms:
        raise CommandError(
            f"--debounce: expected at least {length(delay_ms)}, the delay of --in, got {length(debounce_ms)}",
            "--debounce is the longest time from the first call to the due time",
        )


def _one(  # noqa: PLR0913 -- one parameter for each option that is not the client's
    client: SyncClient,
    output: Output,
    check: Callable[[NewTask], None],
    *,
    payload: str | None,
    delay_ms: int | None,
    due_ms: int | None,
    headers: tuple[tuple[str, str], ...],
    raw: bool,
    content_type: str | None,
    if_exists: IfExists,
    **rest: Any,  # noqa: ANN401 -- of the client
) -> None:
    if payload is None:
        raise CommandError("PAYLOAD: required, but missing", "--many FILE schedules the tasks of a file")
    when: Any = inputs.when(delay_ms, due_ms)
    task = NewTask(
        inputs.payload(payload, raw=raw or content_type not in (None, JSON_TYPE)),
        headers=inputs.headers(headers),
        content_type=content_type,
        **when,
        **rest,
    )
    check(task)
    stored = client.schedule(**task._asdict(), if_exists=if_exists)
    if due_ms is not None and stored.due_ms > due_ms:
        note("note: that time has passed, so it is due now")
    kept = stored.outcome is Outcome.KEPT
    relative = "" if kept or due_ms is not None else f" (in {length(delay_ms)})" if delay_ms else " (now)"
    then = ", once its run has ended" if stored.outcome is Outcome.FOLLOWS else ""
    verb = {Outcome.KEPT: "kept", Outcome.REPLACED: "replaced"}.get(stored.outcome, "scheduled")
    emit(output, _view(stored), f"{verb} {stored.id}, due {iso(stored.due_ms)}{relative}{then}")


def _view(stored: Scheduled) -> views.View:
    return {"id": stored.id, "outcome": stored.outcome.value, **views.instant("due", stored.due_ms)}
