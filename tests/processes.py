"""Child processes for the tests: started, awaited by what they print, stopped, and never left behind.

Waiting is for events, with a deadline: nothing here sleeps and hopes. `RedisServer` is built on this too.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.forking import MAINS, Fork

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DELAYQ = str(Path(sys.executable).with_name("delayq"))
FORKED: Final = {str(Path(sys.executable).with_name(name)) for name in MAINS}
PATIENCE_SECONDS: Final = 60.0
"""Where others use the machine too, even a start of Python takes seconds."""


def poll_pause(waited_s: float, shortest_s: float = 0.02) -> float:
    """Seconds until the next question, where there is no event: the longer the wait, the rarer, but twice a second."""
    return max(shortest_s, min(waited_s / 20, 0.5))


class Gone(Exception):
    """The process ended, or its deadline passed, before it said what was waited for."""


@dataclass
class Process:
    """A running child, with everything it printed so far in `lines` (stdout and stderr together).

    It leads its own session, so Ctrl-C reaches pytest alone, and the kernel kills it when the thread that
    started it dies: start from the main thread.
    """

    popen: subprocess.Popen[str] | Fork
    lines: list[str] = field(default_factory=list)
    ended: bool = False
    _said: threading.Condition = field(default_factory=threading.Condition)
    _reader: threading.Thread | None = None

    @classmethod
    def start(cls, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Process:
        popen = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            bufsize=1,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
            cwd=cwd,
            start_new_session=True,
        )
        return cls._read_from(popen)

    @classmethod
    def quick(cls, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Process:
        """Like `start`, with a command of ours in a fork that needs no imports: for tests that are not about its start.

        Variables of Python's own take effect in a process of its own only.
        """
        if argv[0] not in FORKED or any(name.startswith("PYTHON") for name in env or ()):
            return cls.start(*argv, env=env, cwd=cwd)
        return cls._read_from(Fork(list(argv), os.environ | dict(env or {}), cwd))

    @classmethod
    def _read_from(cls, popen: subprocess.Popen[str] | Fork) -> Process:
        process = cls(popen)
        assert popen.stdout is not None
        process._reader = threading.Thread(target=process._read, args=(popen.stdout,), daemon=True)
        process._reader.start()
        return process

    def _read(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._hear(line.rstrip("\n"))
        self._hear(None)

    def _hear(self, line: str | None) -> None:
        with self._said:
            if line is None:
                self.ended = True
            else:
                self.lines.append(line)
            self._said.notify_all()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def wait_line(self, pattern: str, *, timeout_s: float = PATIENCE_SECONDS, after: int = 0) -> str:
        """The first line from number `after` on that the pattern is found in."""
        deadline = time.monotonic() + timeout_s
        with self._said:
            while True:
                for line in self.lines[after:]:
                    if re.search(pattern, line):
                        return line
                after = len(self.lines)
                left_s = deadline - time.monotonic()
                if self.ended or left_s <= 0:
                    raise Gone(f"never said {pattern!r}:\n{self.output}")
                self._said.wait(left_s)

    async def line(self, pattern: str, *, timeout_s: float = PATIENCE_SECONDS, after: int = 0) -> str:
        return await asyncio.to_thread(self.wait_line, pattern, timeout_s=timeout_s, after=after)

    def wait_http(self, url: str, *, timeout_s: float = PATIENCE_SECONDS) -> bytes:
        """The body of the first answer with status 200; a port has no event to wait for, so ask often."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not self.ended:
            with suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310  our own process
                return bytes(answer.read())
            time.sleep(0.02)
        raise Gone(f"{url} never answered 200:\n{self.output}")

    def wait(self, *, timeout_s: float = PATIENCE_SECONDS) -> int:
        """The exit code, with all output read, unless a child of its own outlives it and holds the pipe."""
        code = self.popen.wait(timeout_s)
        if self._reader is not None:
            self._reader.join(5)
        return code

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL to this one process: children it may have are orphaned, as they would be in real life."""
        self.send(signal.SIGKILL)
        return self.wait()

    def stop(self, *, timeout_s: float = 20) -> int:
        """SIGTERM, then SIGKILL when that was not enough in time; orphans go with it."""
        self.resume()
        self.send(signal.SIGTERM)
        try:
            return self.wait(timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


@contextmanager
def running(*argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Iterator[Process]:
    """A process for the length of a `with` block."""
    process = Process.quick(*argv, env=env, cwd=cwd)
    try:
        yield process
    finally:
        process.stop()


def delayq(*args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Process:
    """Run `delayq …`."""
    return Process.quick(DELAYQ, *args, env=env, cwd=cwd)
