"""A running child process and its output by lines.

It uses a protocol and not asyncio's streams, which limit the length of lines and do not detect the exit of a process
while a handler's own child holds the pipes open.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from delayq.local import tether

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

STDOUT, STDERR = 1, 2
LINE_BYTES = 1 << 20  # longer lines are split
DRAIN_SECONDS = 1.0  # for the remaining output of a process that has exited


@dataclass(frozen=True)
class Command:
    """A command. It runs in its own session, so that Ctrl-C reaches only `delayq run`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # holds Redis' password
    cwd: Path | None = None
    inherited: tuple[int, ...] = ()  # file descriptors
    umask: int = -1  # -1: that of this process
    every_seconds: float | None = None  # start it again so long after its start, if it ends by itself


class Child(asyncio.SubprocessProtocol):
    """A running process."""

    def __init__(self, on_line: Callable[[int, str], None]) -> None:
        """`on_line` receives each line and the stream it came on."""
        self._on_line = on_line
        self._partial = {STDOUT: b"", STDERR: b""}
        self._transport: asyncio.SubprocessTransport
        self._exited, self._drained = asyncio.Event(), asyncio.Event()

    @classmethod
    async def start(cls, command: Command, on_line: Callable[[int, str], None]) -> Child:
        """Start the process."""
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(on_line),
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            env=dict(command.env),
            cwd=command.cwd,
            pass_fds=command.inherited,
            start_new_session=True,
            umask=command.umask,
        )
        return child

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, after the remaining output."""
        await self._exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._drained.wait()
        code = self._transport.get_returncode()
        self._transport.close()
        return -signal.SIGKILL if code is None else code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has exited."""
        with suppress(ProcessLookupError):
            self._transport.send_signal(number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on whole lines."""
        *lines, rest = (self._partial[fd] + data).split(b"\n")
        if len(rest) > LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._partial[fd] = rest
        for line in lines:
            self._on_line(fd, line.decode(errors="replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Pass on an incomplete line; detect the end of both streams."""
        if rest := self._partial.pop(fd, b""):
            self._on_line(fd, rest.decode(errors="replace"))
        if not self._partial:
            self._drained.set()

    def process_exited(self) -> None:
        """Record the exit of the process."""
        self._exited.set()


def tied(parent: int, argv: tuple[str, ...], number: signal.Signals) -> tuple[str, ...]:
    """Return a command line that runs `argv`, a foreign program, with a parent-death signal of `parent`."""
    return (sys.executable, "-I", "-S", tether.__file__, str(parent), str(int(number)), *argv)
