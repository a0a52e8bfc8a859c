"""The schedules of an App for `delayq run`: a process of its own imports the App and prints them, also after a reload.

python -P -m delayq.local.app_schedules PARENT DIRECTORY QUEUE MODULE:APP
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from delayq.contract import to_document
from delayq.contract.document import parse_schedule
from delayq.contract.problems import quote
from delayq.errors import InvalidDocument
from delayq.handlers.app import load
from delayq.local.process import STDOUT, Child
from delayq.local.relay import INVALID
from delayq.local.tether import tie
from delayq.schedules import times  # noqa: F401 -- before the path has the user's modules, see child.py

if TYPE_CHECKING:
    from delayq.contract.schedule import DelaySchedule
    from delayq.local.process import Command

MODULE = __spec__.name


class AppSchedules(NamedTuple):
    """The schedules of an App, and who owns them in Redis."""

    owner: str
    schedules: list[DelaySchedule]


class NotRead(Exception):
    """The App cannot be imported; the message is what its process has printed last."""


async def read(command: Command) -> AppSchedules:
    """Run the process, and return what it prints."""
    lines: dict[bool, str] = {}

    def keep(stream: int, line: str) -> None:
        lines[stream == STDOUT] = line

    child = await Child.start(command, keep)
    try:
        code = await child.wait()
    finally:
        child.send(signal.SIGKILL)
    if code or True not in lines:
        raise NotRead(lines.get(False, f"exit code {code}"))
    try:
        found = json.loads(lines[True])
    except ValueError:
        raise NotRead(f"the process that imports it printed {quote(lines[True])}") from None
    return AppSchedules(found["owner"], [parse_schedule(each) for each in found["documents"]])


def main() -> None:
    """Print the schedules as JSON in the last line of stdout."""
    parent, beside, queue, path = sys.argv[1:]
    tie(int(parent), signal.SIGKILL)
    sys.path[:0] = dict.fromkeys((str(Path.cwd()), beside))
    try:
        with redirect_stdout(sys.stderr):
            app = load(path)
        documents = [to_document(each) for each in app.schedule_documents(queue)]
        print(json.dumps({"owner": app.schedule_owner(path), "documents": documents}))  # noqa: T201 -- its output
        code = 0
    except InvalidDocument as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201 -- for the run
        code = INVALID
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a module may have started threads, which would keep the process


if __name__ == "__main__":
    main()
