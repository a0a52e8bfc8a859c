"""One run of a command: its process group, which is killed at the end, its input and its output.

It uses `subprocess` and a waiting thread, not asyncio's subprocesses. So the process ID is known before a cancellation
is possible, and the leader stays a zombie, whose ID is not reused, until its whole group has been killed by that ID.
The streams are file descriptors, not transports. They work at once and equally on every event loop, a cancellation
cannot interrupt their setup, and the rest of a pipe can be read at the end without waiting.
Not here: the meaning of an exit code (`exec.py`), and the end of a killed worker's commands (`warden.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from delayq.service.resources import check_lack, start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CHUNK_BYTES = 64 * 1024
DRAIN_CHUNKS = 64  # more than a pipe holds: stop reading, even if a descendant outside the group still writes


class Tail:
    """The last `limit` bytes of a stream; everything is read, so that the writer never blocks."""

    __slots__ = ("_limit", "data", "dropped")

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit = limit
        self.data = bytearray()
        self.dropped = 0  # bytes written before the ones kept

    def add(self, chunk: bytes) -> None:
        """Append, and drop the oldest bytes beyond the limit."""
        self.data += chunk
        excess = len(self.data) - self._limit
        if excess > 0:
            del self.data[:excess]
            self.dropped += excess


class Feed:
    """Writes the payload as fast as the child reads it, then ends the stream."""

    def __init__(self, stream: IO[bytes], body: bytes) -> None:
        """Wait for room in the pipe."""
        self._stream, self._left = stream, memoryview(body)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_writer(stream.fileno(), self._write)

    def close(self) -> None:
        """End the stream, whether or not all of it was read."""
        if not self._stream.closed:
            self._loop.remove_writer(self._stream.fileno())
            self._stream.close()

    def _write(self) -> None:
        try:
            written = os.write(self._stream.fileno(), self._left[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:  # a command may ignore its payload
            written = len(self._left)
        self._left = self._left[written:]
        if not self._left:
            self.close()


class Listen:
    """Reads all output of the child into the tails."""

    def __init__(self, stream: IO[bytes], tails: Sequence[Tail]) -> None:
        """Wait for output."""
        self._stream, self._tails = stream, tails
        self._loop = asyncio.get_running_loop()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    def drain(self) -> None:
        """Read the remaining output of a child that has exited, and close the pipe."""
        for _ in range(DRAIN_CHUNKS):
            if not self._read():
                break
        self._close()

    def _read(self) -> bool:
        if self._stream.closed:
            return False
        try:
            chunk = os.read(self._stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        for tail in self._tails:
            tail.add(chunk)
        if not chunk:
            self._close()
        return bool(chunk)

    def _close(self) -> None:
        if not self._stream.closed:
            self._loop.remove_reader(self._stream.fileno())
            self._stream.close()


STDERR_BYTES = 8 * 1024
KILL_SECONDS = 5.0  # only a process stuck inside the kernel outlives SIGKILL for longer


class Spawned(NamedTuple):
    """A process, and the inbox of the thread that waits for its end."""

    process: subprocess.Popen[bytes]
    waiter: SimpleQueue[Callable[[], None] | None]


def spawn(argv: Sequence[str], env: Mapping[str, str | bytes]) -> Spawned:
    """Start a command in its own session, and so in its own process group; OSError if that fails.

    NotStarted if this worker lacks what that takes. The thread comes first: without one, nothing would reap it.
    """
    pipe = subprocess.PIPE
    waiter: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    start_thread("delayq-child", lambda: wait() if (wait := waiter.get()) else None)
    try:
        process = subprocess.Popen(  # noqa: S603 -- the command is the document's own
            argv, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
        )
    except BaseException as error:
        waiter.put(None)
        check_lack(error)
        raise
    return Spawned(process, waiter)


class Child:
    """The process and its output."""

    def __init__(self, spawned: Spawned, *, body: bytes, max_output_bytes: int) -> None:
        """Take over a process from `spawn`."""
        process = spawned.process
        self.output = Tail(max_output_bytes)
        self.errors = Tail(min(STDERR_BYTES, max_output_bytes))
        self.group = process.pid
        self._process = process
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._feed = Feed(cast("IO[bytes]", process.stdin), body)
        self._listening = (
            Listen(cast("IO[bytes]", process.stdout), (self.output,)),
            Listen(cast("IO[bytes]", process.stderr), (self.output, self.errors)),
        )
        spawned.waiter.put(self._await_exit)

    @property
    def running(self) -> bool:
        """Whether the process runs or is a zombie."""
        return self._process.returncode is None

    async def run(self) -> int:
        """Wait until the whole group is gone, and return the exit code of the command (negative: a signal)."""
        await self._ended.wait()
        return self._process.returncode

    async def stop(self, grace_seconds: float) -> None:
        """Stop the group: SIGTERM, then SIGKILL after the grace period, or at once when cancelled again."""
        self._signal(signal.SIGTERM)
        try:
            await self.ended(grace_seconds)
        finally:
            self._signal(signal.SIGKILL)
        await self.ended()

    def _await_exit(self) -> None:
        os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the event loop was closed before the command ended
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        """Kill the remaining processes of the group, read the remaining output, and reap the command."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._feed.close()
        for pipe in self._listening:
            pipe.drain()
        self._ended.set()

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have changed its user
                os.killpg(self.group, number)

    async def ended(self, seconds: float = KILL_SECONDS) -> None:
        """Wait so long for the end of the group; by default, of one that has been killed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
