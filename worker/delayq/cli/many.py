"""Schedule the tasks of a file in batches, and report refused tasks by line. The file can be larger than memory."""

from __future__ import annotations

import base64
import codecs
import difflib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from delayq.cli import views
from delayq.cli.exits import REFUSED, CommandError, as_typed, print_error
from delayq.cli.formats import instant_ms, tasks
from delayq.cli.inputs import MAX_BYTES, length_ms, span_ms
from delayq.cli.output import emit, note
from delayq.client.encoding import NewTask
from delayq.contract.json_text import strict_json
from delayq.contract.problems import quote, type_name
from delayq.errors import InvalidTask, NotConfirmed, TasksRefused, Unavailable
from delayq.protocol.results import Outcome, Scheduled
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from delayq.cli.output import Output
    from delayq.client.blocking import SyncClient
    from delayq.client.enqueue import IfExists

WHEN: Final = ("in", "at", "delay_ms", "due_ms")
PAYLOADS: Final = ("payload", "payload_base64")
READ: Final = (
    *WHEN,
    *PAYLOADS,
    "id",
    "headers",
    "content_type",
    "kind",
    "kind_version",
    "deadline",
    "deadline_ms",
    "debounce",
    "debounce_ms",
    "tags",
)
FIELDS: Final = {"task_id": "id", "version": "kind_version", "debounce_ms": "debounce"}
"""Parameters of Client that its errors name → fields of a line."""
INSTANTS: Final = (*views.INSTANT.values(), "scheduled", "expires")
PASSED_OVER: Final = frozenset(
    {
        "state",
        "token",
        "failures",
        "crashes",
        "reason",
        "error",
        *INSTANTS,
        *(f"{name}_ms" for name in INSTANTS),
    }
)
"""Further keys of exported tasks, which are ignored."""


def new_task(line: bytes) -> NewTask:
    """Parse a line; ValueError describes the problem."""
    fields = strict_json(line)
    if not isinstance(fields, dict):
        expected = 'a JSON object like {"payload": …, "in": "30m"}'
        raise ValueError(f"expected {expected}, got {type_name(fields)}")  # noqa: TRY004 -- an error of the file, not of the caller
    _refuse_unknown(fields)
    return NewTask(
        _payload(fields),
        **_when(fields),
        task_id=fields.get("id"),
        headers=fields.get("headers"),
        content_type=fields.get("content_type"),
        kind=fields.get("kind"),
        version=fields.get("kind_version", 1),
        deadline_ms=_duration_ms(fields, "deadline"),
        debounce_ms=_duration_ms(fields, "debounce"),
        tags=fields.get("tags"),
    )


def _refuse_unknown(fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name not in READ and name not in PASSED_OVER:
            near = difflib.get_close_matches(name, READ, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(READ)}"
            raise ValueError(f"{quote(name)}: unknown field, {hint}")


def _payload(fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- any JSON value, or bytes
    match [name for name in PAYLOADS if name in fields]:
        case ["payload"]:
            return fields["payload"]
        case ["payload_base64"]:
            return _decoded(fields["payload_base64"])
    raise ValueError("expected exactly one of payload and payload_base64")


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type] # a TypeError is caught below
    except (TypeError, ValueError):
        raise ValueError("payload_base64: expected base64 text") from None


def _duration_ms(fields: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 -- the client checks it
    value = fields.get(name)
    if value is None:
        return fields.get(f"{name}_ms")
    if not isinstance(value, str) or fields.get(f"{name}_ms") is not None:
        raise ValueError(f'{name}: expected text like "2h", and no {name}_ms beside it')
    try:
        return length_ms(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _when(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = [name for name in WHEN if fields.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"expected one of {', '.join(WHEN)}, got {' and '.join(given)}")
    if not given:
        return {"delay_ms": 0}
    [name] = given
    value = fields[name]
    if name in ("delay_ms", "due_ms"):
        return {name: value}
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {type_name(value)}")  # noqa: TRY004 -- as above
    try:
        return {"delay_ms": span_ms(value)} if name == "in" else {"due_ms": instant_ms(value)}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


FILE_LINES, FILE_BYTES = 5000, 16 << 20  # of a file, given to schedule_many at a time
AGAIN = (
    "note: with IDs in the file, the same command with --if-exists keep stores the missing tasks and keeps tasks that "
    "wait or run; a task that has finished meanwhile is stored again and runs again"
)
ONE_A_LINE = "writes one object a line"
SHOWN = 20  # refused lines that are printed; the rest are counted
LISTED = (
    100_000  # refused lines in JSON and YAML; refused_count counts all. The file can be larger than memory.
)


@dataclass
class Progress:
    """Progress through a file."""

    name: str
    stored: int = 0
    kept: int = 0
    reached: bool = False  # whether Redis has answered
    number: int = 0  # of the last line read
    count: int = 0  # of refused lines
    refused: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, line: int, message: str) -> None:
        """Report a line that is not stored; continue with the others."""
        self.count += 1
        if self.count <= LISTED:
            self.refused.append((line, message))
        if self.count <= SHOWN:
            click.echo(f"error: {self.name} line {line:,}: {safe(message)}", err=True)

    def show(self) -> None:
        """Print the progress on a terminal."""
        if sys.stderr.isatty():
            click.echo(f"\r{tasks(self.stored)} scheduled", nl=False, err=True)


def schedule(
    client: SyncClient,
    file: BinaryIO,
    check: Callable[[NewTask], None],
    *,
    if_exists: IfExists,
    output: Output,
) -> None:
    """Store the tasks of a file that `check` does not refuse, and print the result."""
    progress = Progress(getattr(file, "name", "-"))
    for numbers, batch in _batches(file, check, progress):
        if not progress.reached:
            client.counts()  # report an unreachable Redis before any task is sent
            progress.reached = True
        try:
            _store(client, numbers, batch, if_exists=if_exists, progress=progress)
        except (NotConfirmed, Unavailable) as error:
            done = numbers[0] - 1
            what = "are stored" if isinstance(error, NotConfirmed) else "may be stored"
            note(f"note: lines up to {done:,} are done; of lines {done + 1:,} to {numbers[-1]:,} some {what}")
            note(AGAIN)
            raise
        progress.show()
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    _report(progress, output)


def _store(
    client: SyncClient, numbers: list[int], batch: list[NewTask], *, if_exists: IfExists, progress: Progress
) -> None:
    try:
        scheduled = client.schedule_many(batch, if_exists=if_exists)
    except TasksRefused as some:
        for at, error in some.refused.items():
            progress.refuse(numbers[at], as_typed(str(error), FIELDS))
        scheduled = [each for each in some.scheduled if isinstance(each, Scheduled)]
    kept = sum(each.outcome is Outcome.KEPT for each in scheduled)
    progress.kept += kept
    progress.stored += len(scheduled) - kept


def _batches(
    file: BinaryIO, check: Callable[[NewTask], None], progress: Progress
) -> Iterator[tuple[list[int], list[NewTask]]]:
    numbers: list[int] = []
    batch: list[NewTask] = []
    size = 0
    for line in _lines(file, progress):
        try:
            task = new_task(line)
            check(task)
        except (ValueError, InvalidTask) as error:
            progress.refuse(progress.number, as_typed(str(error), FIELDS))
            continue
        batch.append(task)
        numbers.append(progress.number)
        size += len(line)
        if len(batch) == FILE_LINES or size > FILE_BYTES:
            yield numbers, batch
            numbers, batch, size = [], [], 0
    if batch:
        yield numbers, batch


def _is_json(text: bytes) -> bool:
    try:
        strict_json(text)
    except ValueError:
        return False
    return True


def _check_shape(first: bytes, progress: Progress) -> None:
    """Refuse a file that is no JSON Lines by its first line: some of its lines could be tasks, and would be stored."""
    got, hint, start = "", "", first.strip()
    if start.startswith(b"["):
        got, hint = "the beginning of an array", f"jq -c '.[]' {ONE_A_LINE}"
    elif start.endswith(b"},") and _is_json(start[:-1]):
        got, hint = (
            "an object and a comma, as in an array",
            f"put all into [ ]; then jq -c '.[]' {ONE_A_LINE}",
        )
    elif start.startswith(b"{") and start.endswith((b"{", b"[", b",", b":")):
        got, hint = "an object over several lines", f"jq -c . {ONE_A_LINE}"
    if got:
        where = f"{progress.name} line {progress.number}"
        message = f"{where}: expected one JSON object a line, got {got}; nothing was stored"
        raise CommandError(message, hint)


def _lines(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    """Yield lines that are not blank; refuse and skip lines that are too long. A byte order mark is skipped."""
    begun = False
    while line := file.readline(MAX_BYTES + 1):
        progress.number += 1
        if progress.number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            progress.refuse(progress.number, f"expected at most {MAX_BYTES:,} bytes, got more")
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_BYTES)
        elif line.strip():
            if not begun:
                _check_shape(line, progress)
            begun = True
            yield line


def _report(progress: Progress, output: Output) -> None:
    value = {
        "scheduled": progress.stored,
        "kept": progress.kept,
        "refused": [{"line": line, "message": message} for line, message in progress.refused],
        "refused_count": progress.count,
        "count": progress.stored + progress.kept + progress.count,
    }
    kept = f", kept {progress.kept:,}" if progress.kept else ""
    refused = f", refused {progress.count:,}" if progress.count else ""
    emit(output, value, f"scheduled {tasks(progress.stored)}{kept}{refused}")
    if progress.count > SHOWN:
        print_error(f"refused {tasks(progress.count - SHOWN, 'more line')}")
    if progress.count:
        sys.exit(REFUSED)
