"""The delayq command. One module per group of commands; this one only puts them together."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line; the extras it needs may be missing."""
    if os.getpid() == 1:
        # Process 1 of a container is deaf to signals that it has no handler for, and importing takes a while: a pod
        # that is deleted meanwhile would go on until it is killed.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.disable()  # until the command is loaded: root.load
    try:
        from delayq.cli.root import delayq  # noqa: PLC0415 -- click is an extra
    except ModuleNotFoundError as error:
        sys.exit(
            f"delayq: {error.name} is not installed; install delayq[worker], or delayq[cli] without processes"
        )
    delayq()
