"""Which shards a worker is not to claim from for now, and when to look at them again. Pure.

Limits of the queue keep due tasks back, and Redis says until when. One shard may also be broken: for example, by a
foreign key under one of its names. Neither may cost the other shards anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.protocol.results import Claimed

ASIDE_SECONDS = 1.0  # before a shard that Redis refused is tried again


class ClaimBackoff:
    """The shards of one shard group. Times are monotonic seconds."""

    def __init__(self) -> None:
        """Nothing is held."""
        self._room: dict[int, float] = {}  # shard to when a rate has room for more
        self._aside: dict[int, float] = {}  # shard to when what it refused is tried again
        self._refused: dict[int, int] = {}  # shard to how often in a row

    def note(self, shard: int, claimed: Claimed, now: float) -> None:
        """Take note of what a claim brought.

        The worker that claimed the last tasks of a rate claims again when the rate allows more. The others need not,
        while that one has free slots: otherwise the scanner wakes them, and their own polling is soon enough. At
        maxInFlight there is nothing to note: the worker that ends a task claims again, or wakes another.

        The shard serves claims again. A settlement that it refused is still to be tried again, at its own time.
        """
        self._room.pop(shard, None)
        self._refused.pop(shard, None)
        if claimed.leases and claimed.room_seconds is not None:
            self._room[shard] = now + claimed.room_seconds

    def refuse(self, shard: int, now: float) -> int:
        """Put a shard aside that Redis refused; returns how often that was so in a row."""
        self._aside[shard] = now + ASIDE_SECONDS
        self._refused[shard] = self._refused.get(shard, 0) + 1
        return self._refused[shard]

    @property
    def refused(self) -> Collection[int]:
        """The shards that Redis refused, and that are not due to be looked at again."""
        return self._refused.keys() & self._aside.keys() if self._refused else ()

    def all_refused(self, shards: Collection[int]) -> bool:
        """Whether none of these shards serves: that is an outage, and no trouble of a single shard."""
        return all(shard in self._refused for shard in shards)

    def due(self, now: float) -> list[int]:
        """Return the shards to look at again."""
        if not (self._room or self._aside):
            return []
        found = set[int]()
        for times in (self._room, self._aside):
            over = [shard for shard, at in times.items() if at <= now]
            found.update(over)
            for shard in over:
                del times[shard]
        return sorted(found)

    def next_in(self, now: float) -> float:
        """Return the seconds until there is one; inf when none is held for a known time."""
        return min([*self._room.values(), *self._aside.values()], default=float("inf")) - now
