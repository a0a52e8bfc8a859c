"""Runs a delayq command in a pod and ends it when its stdin is closed, which means that `kubectl exec` has ended.

Usage: `python3 -m delayq.cli.kubectl.stdin_watchdog counts --watch …`. A kubectl that is stopped ends nothing in the
pod, and the container's output is still read, so without this a command without an end would never stop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

STDIN: Final = 0
ENOUGH: Final = 1 << 10


def main() -> None:
    """Run the command; it has no stdin of its own."""
    held = os.dup(STDIN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    threading.Thread(target=_hold, args=(held,), daemon=True).start()
    from delayq.cli import main as delayq  # noqa: PLC0415 -- once its stdin is what it should be

    sys.argv[0] = "delayq"
    delayq()


def _hold(held: int) -> None:
    while os.read(held, ENOUGH):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
