"""Dying with the parent: nothing that `delayq run` starts may outlive it, even when it is SIGKILLed.

Linux signals a process when the thread that started it ends, if the process asks. It asks for itself, because a
preexec_fn would run Python between fork and exec. As a script, `tether.py PARENT SIGNAL command…` asks and then
becomes a command that cannot: the request survives exec. Standard library only, so that this costs milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie(parent: int, number: int) -> None:
    """Have this process signalled when `parent` dies; end at once when it is dead already."""
    if sys.platform != "linux":  # elsewhere a killed `delayq run` leaves its processes behind
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def become(parent: int, number: int, command: list[str]) -> None:
    """Turn into `command`, tied."""
    tie(parent, number)
    os.execv(command[0], command)  # noqa: S606 -- an absolute path and its arguments, no shell wanted


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
