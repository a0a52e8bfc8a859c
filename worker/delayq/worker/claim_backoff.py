"""Shards from which a worker does not claim for now, and until when. Pure.

A limit of the queue may hold due tasks back until a time that Redis returns. A shard may also reject calls, for
example because another client wrote one of its keys. Neither affects other shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from delayq.protocol.results import Claimed

REFUSED_SECONDS = 1.0  # before the next try of a shard whose call Redis rejected


class ClaimBackoff:
    """The shards of one shard group. Times are monotonic seconds."""

    def __init__(self) -> None:
        """No shard is backed off."""
        self._held_until: dict[int, float] = {}  # shard to when the rate limit allows more
        self._refused_until: dict[int, float] = {}  # shard to its next try after a rejected call
        self._refused: dict[int, int] = {}  # shard to rejections in a row

    def note(self, shard: int, claimed: Claimed, now: float, *, made_room: bool = False) -> None:
        """Record the result of a claim: the shard serves claims again. A rejected settlement keeps its own time.

        One worker claims again when the rate allows more: the one whose claim exhausted it, even if it claims in vain
        before that time. Other workers need no timer: they poll, and the scanner wakes them if that worker has no free
        slot. maxInFlight needs no timer either: the worker that ends a task claims again, or wakes another. If the rate
        stops that claim (`made_room`), no other hint would come, so the worker waits for the rate.
        """
        waits = self._held_until.pop(shard, None) is not None
        self._refused.pop(shard, None)
        if claimed.room_seconds is not None and (claimed.tasks or waits or made_room):
            self._held_until[shard] = now + claimed.room_seconds

    def refuse(self, shard: int, now: float) -> int:
        """Back off from a shard whose call Redis rejected; returns the number of rejections in a row."""
        self._refused_until[shard] = now + REFUSED_SECONDS
        self._refused[shard] = self._refused.get(shard, 0) + 1
        return self._refused[shard]

    @property
    def refused(self) -> Collection[int]:
        """The shards whose calls Redis rejected, and whose next try is not due."""
        return self._refused.keys() & self._refused_until.keys() if self._refused else ()

    def refuses(self, shard: int) -> bool:
        """Whether Redis rejected the last call of this shard."""
        return shard in self._refused

    def all_refused(self, shards: Collection[int]) -> bool:
        """Whether Redis rejects the calls of all these shards: that is an outage, not a problem of one shard."""
        return all(map(self.refuses, shards))

    def due(self, now: float) -> list[int]:
        """Return the shards to try again now."""
        if not (self._held_until or self._refused_until):
            return []
        found = set[int]()
        for times in (self._held_until, self._refused_until):
            over = [shard for shard, at in times.items() if at <= now]
            found.update(over)
            for shard in over:
                del times[shard]
        return sorted(found)

    def next_in(self, now: float) -> float:
        """Return the seconds until the next shard is due; inf without any."""
        times = [*self._held_until.values(), *self._refused_until.values()]
        return min(times) - now if times else float("inf")
