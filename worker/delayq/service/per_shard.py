"""Shard by shard, where what is wrong with one is not the others' trouble: a key of another type, say.

Not here: a server that is away, which is the trouble of all shards that it holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from delayq.errors import DelayQError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

T = TypeVar("T")


class PerShard:
    """What one loop does for each of its shards."""

    def __init__(self, loop: str) -> None:
        """Name the loop in the log."""
        self._loop = loop
        self.refused: dict[int, int] = {}  # shard → how often in a row

    async def each(self, shards: Iterable[int], act: Callable[[int], Awaitable[T]]) -> list[T]:
        """Look after all shards, and past those that refuse; raises where every one does, or none is served."""
        found, first = [], None
        for shard in shards:
            try:
                found.append(await act(shard))
            except Unavailable:
                raise
            except DelayQError as error:
                first = first or error
                self.refuse(shard, error)
            else:
                self.serve(shard)
        if first is not None and not found:
            raise first
        return found

    def refuse(self, shard: int, error: DelayQError) -> None:
        """Take note that a shard refused, and tell of the 1st, 2nd, 4th, … time in a row."""
        times = self.refused[shard] = self.refused.get(shard, 0) + 1
        if times & (times - 1) == 0:
            fields = {"loop": self._loop, "shard": shard, "error": str(error), "times": times}
            log.warning("shard_refused", extra={"fields": fields})

    def serve(self, shard: int) -> None:
        """Take note that a shard did not."""
        self.refused.pop(shard, None)
