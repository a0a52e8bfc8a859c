"""Bounds how much of all bodies is in memory at a time: each connection alone may be harmless."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delayq.api.problems import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCHES: Final = 2
"""That are read, checked and stored at a time: each needs memory for its text and its tasks."""
BODIES_BYTES: Final = 16 << 20
"""Of all other bodies, until their requests are answered."""
FREE_BYTES: Final = 16 << 10
"""Of each body that are not counted, so that large ones keep no small one away."""


class Room:
    """What bodies are in memory."""

    def __init__(self, most: int) -> None:
        """`most` bytes: the largest body that is not a batch; one always fits."""
        self._most = max(BODIES_BYTES, most)
        self._batches = self._bytes = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold a batch; ApiError if there are too many."""
        if self._batches >= BATCHES:
            raise ApiError("busy", f"{BATCHES} batches are in memory already: send it again later")
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Hold another body. Yields a function that takes its size as it grows; ApiError if there is no room."""
        held = 0

        def grow(size: int) -> None:
            nonlocal held
            more = max(0, size - FREE_BYTES) - held
            if more > 0:
                held += more
                self._bytes += more
                if self._bytes > self._most:
                    raise ApiError("busy", "too many large bodies are in memory already: send it again later")

        try:
            yield grow
        finally:
            self._bytes -= held
