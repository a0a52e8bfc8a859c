"""Import the handlers of a worker as it does, and start nothing: `delayq run --reload` does so before it stops one.

    python -P -m delayq.local.check PARENT DIRECTORY FILE QUEUE [FILE QUEUE]…

Ends with IMPORTED, or with INVALID and the error on stderr. -P: as in child.py.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from delayq import handlers
from delayq.client.document import named, read_all
from delayq.connection import Address
from delayq.connection.address import secrets_dir
from delayq.errors import InvalidDocument
from delayq.handlers import app, exec, http, python, routing  # noqa: A004, F401 -- before users' modules can replace what they import
from delayq.local.plan import URL_VARIABLE
from delayq.local.relay import IMPORTED, INVALID
from delayq.local.tether import tie
from delayq.recovery import checks
from delayq.recovery.checks import python as python_check  # noqa: F401 -- as above


def main() -> None:
    """Check the queues of argv, with the current directory and the document's on the path."""
    parent, beside, *pairs = sys.argv[1:]
    tie(int(parent), signal.SIGKILL)
    sys.path[:0] = dict.fromkeys((str(Path.cwd()), beside))
    code = IMPORTED
    try:
        for file, queue in zip(pairs[::2], pairs[1::2], strict=True):
            _check(file, queue)
    except InvalidDocument as error:
        print(error, file=sys.stderr)  # noqa: T201 -- for the run
        code = INVALID
    sys.stderr.flush()
    os._exit(code)  # a module may have started threads


def _check(file: str, queue: str) -> None:
    for each in read_all([file]):
        if each.queue.queue != queue:
            continue
        spec, directory = each.queue.spec, secrets_dir()
        try:
            address = Address.of(spec.redis, directory, url=os.environ.get(URL_VARIABLE))
            handlers.build(each.queue, secrets_dir=directory, address=address).coverage(spec.guard)
            checks.build(each.queue, address, secrets_dir=directory)
        except InvalidDocument as error:
            raise named(error, each) from error


if __name__ == "__main__":
    main()
