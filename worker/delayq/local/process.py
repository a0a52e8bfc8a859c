"""One running child process and what it says, line by line. Not here: what the lines mean, or starting it again.

A protocol rather than asyncio's streams: the end of the process is seen even while a process of a handler's own
still holds its pipes, and no line is too long.
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
LINE_BYTES = 1 << 20  # a longer line is passed on in pieces
LAST_WORDS_SECONDS = 1.0  # for what is still in the pipes of a process that has ended


@dataclass(frozen=True)
class Command:
    """What to start. It gets a session of its own, so that Ctrl-C reaches `delayq run` alone."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # holds Redis' password
    cwd: Path | None = None
    inherited: tuple[int, ...] = ()  # open files it keeps
    umask: int = -1  # ours


class Child(asyncio.SubprocessProtocol):
    """A process under way."""

    def __init__(self, hear: Callable[[int, str], None]) -> None:
        """`hear` is given each line and the stream it came on."""
        self._hear = hear
        self._partial = {STDOUT: b"", STDERR: b""}
        self._transport: asyncio.SubprocessTransport
        self._exited, self._drained = asyncio.Event(), asyncio.Event()

    @classmethod
    async def start(cls, command: Command, hear: Callable[[int, str], None]) -> Child:
        """Start it."""
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(hear),
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            env=dict(command.env),
            cwd=command.cwd,
            pass_fds=command.inherited,
            start_new_session=True,
            umask=command.umask,
        )
        return child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._transport.get_pid()

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, once its last words are heard."""
        await self._exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._drained.wait()
        code = self._transport.get_returncode()
        self._transport.close()
        return -signal.SIGKILL if code is None else code

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        with suppress(ProcessLookupError):
            self._transport.send_signal(number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on whole lines."""
        *lines, rest = (self._partial[fd] + data).split(b"\n")
        if len(rest) > LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._partial[fd] = rest
        for line in lines:
            self._hear(fd, line.decode(errors="replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Pass on an unfinished line; note when both streams have ended."""
        if rest := self._partial.pop(fd, b""):
            self._hear(fd, rest.decode(errors="replace"))
        if not self._partial:
            self._drained.set()

    def process_exited(self) -> None:
        """Note the end of the process."""
        self._exited.set()


def tied(parent: int, argv: tuple[str, ...], number: signal.Signals) -> tuple[str, ...]:
    """Return a command line that runs `argv`, which is no Python of ours, tied to `parent`."""
    return (sys.executable, "-I", "-S", tether.__file__, str(parent), str(int(number)), *argv)
