"""A process that kills the running commands of a worker that was killed.

SIGKILL leaves the worker no time to do so itself, and a process group does not end with its creator. The worker sends
the IDs of running groups over a pipe (`+123`, `-123`). The pipe closes when the worker ends, for any reason. The
warden runs as a script, without site-packages, to save memory. It cannot kill descendants of a command that created
their own session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import IO, cast


class Warden:
    """The worker's end of the pipe."""

    def __init__(self) -> None:
        """Start the process in its own session, so that Ctrl-C does not reach it."""
        self._process = subprocess.Popen(  # noqa: S603 -- this interpreter and this file
            [sys.executable, "-I", "-S", __file__],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pipe = cast("IO[bytes]", self._process.stdin)
        os.set_blocking(self._pipe.fileno(), False)

    def watch(self, group: int) -> None:
        """Kill this group when the worker dies."""
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Forget a group that has ended."""
        self._send(f"-{group}\n")

    def close(self) -> None:
        """Close the pipe, which ends the process."""
        self._pipe.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        # A warden that has ended or hangs must not stop deliveries: the fencing token protects tasks without it.
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            self._pipe.write(line.encode())


def serve(pipe: int) -> None:
    """Read the pipe to its end, then kill the remaining groups."""
    groups: set[int] = set()
    with os.fdopen(pipe, "r", encoding="utf-8") as lines:
        for line in lines:
            change = groups.add if line.startswith("+") else groups.discard
            change(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.stdin.fileno())
