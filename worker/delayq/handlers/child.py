"""One run of a command: a process group that is fed, listened to, and gone when we are done with it.

A protocol rather than asyncio's streams: output beyond the bound is dropped as it arrives, and the end of
the process is seen even while a grandchild still holds its pipes (`Process.wait()` of some Python versions
waits for those too). Not here: what an exit code means (`exec.py`), and what happens when the worker is
killed (`warden.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, cast

from delayq.handlers.output import Tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STDERR_BYTES = 8 * 1024
KILL_SECONDS = 5.0  # only a process stuck inside the kernel outlives SIGKILL for longer
DRAIN_SECONDS = 1.0  # for output still in the pipes once the whole group is dead
_OUTPUTS = (1, 2)


class Child(asyncio.SubprocessProtocol):
    """The process and its output."""

    def __init__(self, max_output_bytes: int) -> None:
        """Wait for `connection_made`."""
        self.output = Tail(max_output_bytes)
        self.errors = Tail(min(STDERR_BYTES, max_output_bytes))
        self.group = 0  # the process id, and as leader of a session also the process group's
        self._transport: asyncio.SubprocessTransport
        self._exited = asyncio.Event()
        self._drained = asyncio.Event()
        self._open = set(_OUTPUTS)

    async def run(self, body: bytes) -> int:
        """Feed the payload, wait until the whole group is gone, return the exit code (negative: a signal)."""
        self._feed(body)
        await self._exited.wait()
        await self._bury()
        code = self._transport.get_returncode()
        return -signal.SIGKILL if code is None else code

    async def stop(self, grace_seconds: float) -> None:
        """End the group: politely first. Cancelled again, it is killed at once."""
        self._signal(signal.SIGTERM)
        try:
            await self._wait_for_exit(grace_seconds)
        finally:
            self.kill()
        await self._wait_for_exit(KILL_SECONDS)

    def kill(self) -> None:
        """End the group without a word."""
        self._signal(signal.SIGKILL)
        self._transport.close()

    async def _wait_for_exit(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()

    async def _bury(self) -> None:
        """Kill what the command left behind in its group, and read what it still had to say."""
        self._signal(signal.SIGKILL)
        with contextlib.suppress(TimeoutError):  # a grandchild in a session of its own holds the pipes
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._drained.wait()
        self._transport.close()

    def _feed(self, body: bytes) -> None:
        stdin = self._transport.get_pipe_transport(0)
        if isinstance(stdin, asyncio.WriteTransport):
            stdin.write(body)  # a child that does not read it closes the pipe; nobody minds
            stdin.write_eof()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(self.group, number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.group = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the tail: of both streams for the log, of stderr for the error."""
        self.output.add(data)
        if fd == _OUTPUTS[1]:
            self.errors.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Note which streams have ended."""
        self._open.discard(fd)
        if not self._open:
            self._drained.set()

    def process_exited(self) -> None:
        """Note the end of the command itself."""
        self._exited.set()


async def spawn(argv: Sequence[str], *, env: Mapping[str, str], max_output_bytes: int) -> Child:
    """Start the command in a session of its own; cancelled meanwhile, nothing of it stays."""
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(lambda: Child(max_output_bytes), *argv, env=dict(env), start_new_session=True)
    )
    try:
        _, child = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_kill_unwanted)
        raise
    return child


def _kill_unwanted(starting: asyncio.Future[tuple[asyncio.SubprocessTransport, Child]]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result()[1].kill()
