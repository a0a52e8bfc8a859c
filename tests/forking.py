"""Processes that are forked from one that has imported all that they need: an import takes up to a second of a core."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.popen_forkserver import Popen
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from delayq.cli import main
from delayq.local.tether import tie
from delayq_operator.__main__ import main as operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

CONTEXT: Final = multiprocessing.get_context("forkserver")
ROOT: Final = str(Path(__file__).parents[1])
MAINS: Final = {"delayq": main, "delayq-operator": operator}
"""What the installed scripts call."""


@contextmanager
def forking(*modules: str) -> Iterator[None]:
    """A process that has imported these, whose forks start at once. Nothing else ends it while this one lives."""
    end()
    CONTEXT.set_forkserver_preload(list(modules))
    child = CONTEXT.Process(target=os.getpid)
    child.start()
    child.join()
    try:
        yield
    finally:
        end()


def end() -> None:
    """End the process that forks, and its forks, and wait for it; the next fork starts another one."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it has no public way to end
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # nor has this one


class Fork:
    """One of our commands in a fork, with what `Process` needs of subprocess.Popen; threads may share it."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], cwd: Path | None, log: IO[bytes] | None = None
    ) -> None:
        """What it writes goes into a log, or to `stdout`."""
        self.args, self.stdout = argv, None
        CONTEXT.set_forkserver_preload(["tests.preloaded"])  # for one that has yet to start
        output, writer = CONTEXT.Pipe(duplex=False)
        with output, writer:
            if log is None:
                self.stdout = os.fdopen(os.dup(output.fileno()), errors="replace")
            else:
                os.dup2(log.fileno(), writer.fileno())
            arguments = (argv, dict(env), str(cwd or Path.cwd()), writer)
            # Not its `start`, which looks after all processes that any thread has started.
            self._child = Popen(CONTEXT.Process(target=_run, args=arguments))
        self.pid: int = self._child.pid
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        with self._reading:  # the exit code can be read once
            return self._child.poll()

    def wait(self, timeout: float | None = None) -> int:
        wait([self._child.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)


def _run(argv: list[str], env: dict[str, str], cwd: str, output: Connection) -> None:
    """What the script does, in a session of its own that ends with the fork server."""
    os.setsid()
    tie(os.getppid(), signal.SIGKILL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", 1, closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, closefd=False)  # type: ignore[misc]
    added = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv, sys.path = argv, [*added, *(each for each in sys.path if each not in ("", ROOT))]
    MAINS[Path(argv[0]).name]()
