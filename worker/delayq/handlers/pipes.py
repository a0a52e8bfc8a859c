"""The ends of a child's three streams that the worker holds, served by the event loop without blocking it.

Bare descriptors rather than transports: they work at once and the same on every event loop, nothing can be
cancelled halfway into setting them up, and at the end what is left in a pipe can be read without waiting.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from delayq.handlers.output import Tail

CHUNK_BYTES = 64 * 1024
DRAIN_CHUNKS = 64  # more than a pipe holds: somebody who got away is still writing, and may go on without us


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
        except BrokenPipeError:  # a child that does not want its payload: nobody minds
            written = len(self._left)
        self._left = self._left[written:]
        if not self._left:
            self.close()


class Listen:
    """Reads all that the child writes; the tails decide what is kept."""

    def __init__(self, stream: IO[bytes], tails: Sequence[Tail]) -> None:
        """Wait for output."""
        self._stream, self._tails = stream, tails
        self._loop = asyncio.get_running_loop()
        os.set_blocking(stream.fileno(), False)
        self._loop.add_reader(stream.fileno(), self._read)

    def drain(self) -> None:
        """Read what is left in the pipe of a child that has ended, and close it."""
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
