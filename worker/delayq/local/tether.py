"""Stop child processes with their parent: no child of `delayq run` outlives it, even after SIGKILL.

With PR_SET_PDEATHSIG, Linux signals a process when the thread that started it ends. The child sets it itself, because
a preexec_fn would run Python between fork and exec. The setting survives exec: as a script, `tether.py PARENT SIGNAL
command…` sets it and then executes a foreign command. Standard library only, for a start in milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie(parent: int, number: int) -> None:
    """Set the signal for the death of `parent`; exit at once if it is dead already."""
    if sys.platform != "linux":  # elsewhere a killed `delayq run` leaves its processes behind
        return
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    tie(int(sys.argv[1]), int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606 -- an absolute path and arguments, without a shell
