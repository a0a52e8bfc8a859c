"""Check the tasks of `delayq schedule` by the document's App, where its module can be imported."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING

from delayq.app.arguments import InvalidArguments
from delayq.cli.output import note
from delayq.client.taken_kinds import app_of
from delayq.errors import InvalidDocument, InvalidTask
from delayq.handlers.app import load
from delayq.handlers.importing import ModuleMissing
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.cli.target import Target
    from delayq.client.encoding import NewTask


def checker(target: Target) -> Callable[[NewTask], None]:
    """Import the App, and return what raises InvalidTask for arguments that do not fit a kind of it.

    Without the App's module here, as in the pod of a scanner, nothing is checked. An App that is here and cannot be
    loaded is told.
    """
    path = _app_path(target)
    if path is not None and target.path is not None:
        sys.path.insert(0, str(target.path.absolute().parent))  # as `delayq run`
        _load(path)

    def check(task: NewTask) -> None:
        app = app_of(path)
        kind = app.find(task.kind, task.version) if app is not None else None
        if kind is None or task.content_type not in (None, JSON_TYPE):
            return
        body = task.payload if isinstance(task.payload, bytes) else json.dumps(task.payload).encode()
        try:
            kind.arguments.decode(body)
        except InvalidArguments as error:
            raise InvalidTask(task.task_id or "", f"task {kind.name}: {error}") from error

    return check


def _load(path: str) -> None:
    try:
        with redirect_stdout(sys.stderr), suppress(ModuleMissing):
            load(path)
    except InvalidDocument as error:
        note(f"warning: {error}: the kinds of the App and their arguments are not checked")


def _app_path(target: Target) -> str | None:
    python = target.document.spec.handler.python if target.document is not None else None
    return python.app if python else None
