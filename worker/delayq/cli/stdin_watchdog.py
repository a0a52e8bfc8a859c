"""Run a delayq command in a pod until its stdin closes, which means that `kubectl exec` has ended.

Usage: `python3 -m delayq.cli.stdin_watchdog top …`. Kubernetes does not stop the process in the pod
when kubectl ends, and still reads its output: without the watchdog, an endless command would never stop.
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
    """Run the command with an empty stdin."""
    held = os.dup(STDIN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    threading.Thread(target=_hold, args=(held,), daemon=True).start()
    from delayq.cli import main as delayq  # noqa: PLC0415 -- after stdin is replaced

    sys.argv[0] = "delayq"
    delayq()


def _hold(held: int) -> None:
    while os.read(held, ENOUGH):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
