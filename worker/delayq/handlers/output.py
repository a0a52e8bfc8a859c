"""The end of what a child writes, in bounded memory."""

from __future__ import annotations


class Tail:
    """The last `limit` bytes of a stream; everything is read, so that the writer never blocks."""

    __slots__ = ("_limit", "data", "dropped")

    def __init__(self, limit: int) -> None:
        """Hold nothing yet."""
        self._limit = limit
        self.data = bytearray()
        self.dropped = 0  # bytes written before the ones kept

    def add(self, chunk: bytes) -> None:
        """Append, and let go of the oldest bytes beyond the limit."""
        self.data += chunk
        excess = len(self.data) - self._limit
        if excess > 0:
            del self.data[:excess]
            self.dropped += excess
