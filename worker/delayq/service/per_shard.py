"""Isolate errors of single shards, such as a key of a wrong type, from other shards.

Not here: an outage of a server, which affects all of its shards.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from delayq.errors import DelayQError, Outage, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable


log = logging.getLogger(__name__)

T = TypeVar("T")


class PerShard:
    """Errors of one loop, by shard."""

    def __init__(self, loop: str) -> None:
        """Name the loop in the log."""
        self._loop = loop
        self.refused: dict[int, tuple[int, Outage]] = {}  # shard → errors in a row, cause of the last one

    async def each(self, shards: Iterable[int], act: Callable[[int], Awaitable[T]]) -> list[T]:
        """Act on all shards, skipping those with errors; raises if all fail, or at an outage."""
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
        """Record an error of a shard; the 1st, 2nd, 4th, … in a row is logged."""
        times = self.refused.get(shard, (0,))[0] + 1
        self.refused[shard] = times, error.outage
        if times & (times - 1) == 0:
            fields = {"loop": self._loop, "shard": shard, "error": str(error), "times": times}
            log.warning("shard_refused", extra={"fields": fields})

    def serve(self, shard: int) -> None:
        """Record a success of a shard."""
        self.refused.pop(shard, None)
