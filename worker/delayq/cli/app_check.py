"""Check tasks, and those of schedules, by the document's handler, and by its App where that can be imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from delayq.app.arguments import InvalidArguments
from delayq.cli.output import note
from delayq.client.document import Document, named
from delayq.client.encoding import NewTask
from delayq.client.taken_kinds import TakenKinds, app_of
from delayq.contract.problems import Problem, SpecError
from delayq.errors import InvalidDocument, InvalidTask
from delayq.handlers.app import load
from delayq.handlers.importing import ModuleMissing
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.app import App
    from delayq.cli.target import Target
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule

TaskCheck = Callable[[NewTask], None]
ScheduleCheck = Callable[["DelaySchedule"], None]

unknown_kind_option = click.option(
    "--unknown-kind",
    is_flag=True,
    help="Store tasks of kinds that no handler of the document takes. They wait for a worker that does.",
)


def checker(document: DelayQueue | None, file: Path | None) -> TaskCheck:
    """Import the App, and return what raises InvalidTask for arguments that do not fit a kind of it.

    `file`: of the document, beside which the App may be; None: do not import it. Without the App's module here, as in
    the pod of a scanner, nothing is checked. An App that is here and cannot be loaded is reported.
    """
    python = None if document is None else document.spec.handler.python
    path = python.app if python else None
    if document is not None and path is not None and file is not None:
        _load(path, Document(file, str(file), document))

    def check(task: NewTask) -> None:
        app = app_of(path)
        kind = app.find(task.kind, task.version) if app is not None else None
        if kind is None or task.content_type not in (None, JSON_TYPE):
            return
        body = task.payload if isinstance(task.payload, bytes) else json.dumps(task.payload).encode()
        try:
            kind.codec.decode(body)
        except InvalidArguments as error:
            raise InvalidTask(task.task_id or "", f"task {kind.name}: {error}") from error

    return check


def kinds(target: Target) -> list[str]:
    """Return the names of the kinds of the document's handler, those of its App where that can be imported."""
    if target.document is None:
        return []
    checker(target.document, target.path)
    return TakenKinds(target.document.spec.handler).names


def imported(path: str, document: Document) -> App:
    """Import the App of a document, beside whose file it may be; InvalidDocument if it cannot be."""
    sys.path.insert(0, str(Path(document.path).absolute().parent))  # as `delayq run`
    try:
        with redirect_stdout(sys.stderr):
            return load(path)
    except InvalidDocument as error:
        raise named(error, document) from error


def schedules_of_app(document: Document) -> Iterator[tuple[str, DelaySchedule]]:
    """Yield where each schedule of a document's App is, and the schedule; InvalidDocument if the App is broken."""
    python = document.queue.spec.handler.python
    if python is None or python.app is None:
        return
    try:
        app = imported(python.app, document)
    except InvalidDocument as error:
        if error.__cause__ is None or not isinstance(error.__cause__.__cause__, ModuleNotFoundError):
            raise
        note(f"note: {error}: the App's schedules, kinds and arguments are not checked")
        return
    for schedule in app.schedule_documents(document.queue.metadata.name):
        yield f"{python.app}: {schedule.metadata.name}", schedule


def _load(path: str, document: Document) -> None:
    try:
        imported(path, document)
    except InvalidDocument as error:
        if isinstance(error.__cause__, ModuleMissing):
            return
        note(f"warning: {error}: the kinds of the App and their arguments are not checked")


def schedule_checker(document: DelayQueue | None, file: Path | None, anyway: str = "") -> ScheduleCheck:
    """Return what raises SpecError for a schedule whose task no handler takes; see `checker` and TakenKinds."""
    taken = None if document is None else TakenKinds.of(document.spec.handler, anyway)
    arguments = checker(document, file)

    def check(schedule: DelaySchedule) -> None:
        name, spec = schedule.metadata.name, schedule.spec.task
        task = NewTask(spec.value, task_id=name, kind=spec.kind, version=spec.version or 1)
        if taken is not None:
            with _wrong("kind"):
                taken.check(name, task.kind, task.version)
        with _wrong("payload"):
            arguments(task)

    return check


@contextmanager
def _wrong(field: str) -> Iterator[None]:
    """Raise InvalidTask as a problem of this field of a schedule."""
    try:
        yield
    except InvalidTask as error:
        message = str(error).removeprefix(f"{field}: ")
        raise SpecError((Problem(f"spec.task.{field}", message),)) from error
