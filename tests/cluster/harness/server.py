"""A server of the control plane: a process whose log is a file, on a port that it keeps over restarts."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final

from tests.forking import Fork
from tests.processes import Gone, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

POLL_SECONDS: Final = 0.05
READY_SECONDS: Final = 90.0
"""A cold start takes 5 s; two at once on a machine that builds something else, much longer."""
TAIL_BYTES: Final = 6_000
PORTS: Final = range(12_000, 20_000)
"""Below those of tests.servers, whose servers take a port without a look at it first."""


class PortTaken(Gone):
    """Another process had the port first."""


@dataclass
class LoggedProcess(Process):
    """A child that writes to a file, so that a talkative server costs us no memory."""

    @classmethod
    def into(
        cls, log: IO[bytes], *argv: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> LoggedProcess:
        # Like Process.start: killed by the kernel when the thread that started it dies, and deaf to Ctrl-C.
        popen = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        return cls(popen)

    @classmethod
    def forked(cls, log: IO[bytes], *argv: str, cwd: Path, env: Mapping[str, str]) -> LoggedProcess:
        """The same of a command that tests.forking has imported."""
        return cls(Fork([*argv], env, cwd, log))


def free_port() -> int:
    """A port that is free, for a server that cannot be started again on another."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port


@dataclass
class Server:
    """One server. `argv` and `is_ready` say what it is; the rest is the same for all.

    Start it from the main thread: the kernel kills it with the thread that started it.
    """

    name: str
    dir: Path
    argv: Callable[[], list[str]]
    is_ready: Callable[[], bool]
    choose_ports: Callable[[], None] = lambda: None
    into: Callable[..., LoggedProcess] = LoggedProcess.into
    """What starts it."""
    process: LoggedProcess | None = None
    log: Path = field(init=False)
    started_at: float = 0.0

    def __post_init__(self) -> None:
        self.log = self.dir / f"{self.name}.log"

    def start_anywhere(self) -> None:
        """Start on ports that turn out to be free."""
        while True:
            self.choose_ports()
            try:
                self.start()
            except PortTaken:
                continue
            return

    def start(self) -> None:
        """Start on the same ports and data as before, and return when it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        assert self.process is None or not self.process.alive, f"{self.name} is already running"
        with self.log.open("ab") as log:
            self._logged_before = log.tell()
            self.started_at = time.monotonic()
            self.process = self.into(log, *self.argv(), cwd=self.dir)

    def repair(self) -> None:
        """Start it when it is dead, resume it when it is paused."""
        if not self.alive:
            self.launch()
        self.resume()
        self.wait_ready()

    def wait_ready(self, *, timeout_s: float = READY_SECONDS) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if not self.alive:
                self._died()
            if time.monotonic() > deadline:
                raise Gone(f"{self.name} was not ready within {timeout_s:g} s:\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def _died(self) -> None:
        tail = self.tail()
        raise (PortTaken if "address already in use" in tail else Gone)(f"{self.name} ended:\n{tail}")

    def tail(self) -> str:
        """The last lines of its log since its last start."""
        with self.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._logged_before, end - TAIL_BYTES))
            return log.read().decode(errors="replace")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that was not enough in time; nothing when it does not run."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        self._running().kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def _running(self) -> LoggedProcess:
        assert self.process is not None, f"{self.name} was never started"
        return self.process
