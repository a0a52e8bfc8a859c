"""Entry point of the delayq command."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line. Exit with a message when an extra is missing."""
    if os.getpid() == 1:
        # The kernel ignores SIGTERM for process 1 of a container without a handler. Without this line, a pod that is
        # deleted during the imports runs until SIGKILL. Not sys.exit: an import may lose its exception. Not 0: a Job
        # would count as complete.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    gc.disable()  # until the command is loaded: root.load
    try:
        from delayq.cli.root import delayq  # noqa: PLC0415 -- click is an extra
    except ModuleNotFoundError as error:
        sys.exit(
            f"delayq: {error.name} is not installed; install delayq[worker], or delayq[cli] without processes"
        )
    delayq()
