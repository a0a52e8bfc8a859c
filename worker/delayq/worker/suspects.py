"""When a worker runs suspects: tasks whose lease expired. It runs them in groups, and nothing else meanwhile. Pure.

A worker with nothing to do takes a group at once. If no worker has, one per shard stops claiming until its tasks have
ended. Between two groups it claims healthy tasks, so that neither kind holds up the other.
Not here: how groups are formed and halved (isolate.lua).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

PATIENCE_SECONDS = 2.0  # for which suspects wait for a worker that has nothing else to do
RENEW_SECONDS = 0.5  # between two renewals of a reservation, and before another try for a group
RESERVED_MS = 3000  # how long a reservation lasts when it is not renewed


class Suspects:
    """The suspects that a worker knows of. Times are monotonic seconds."""

    def __init__(self, drain_seconds: float) -> None:
        """No suspects are known. `drain_seconds` is the longest time in which running tasks should end."""
        self.owner = secrets.token_hex(8)
        self.running = False  # a group runs, or is about to
        self.reserved: int | None = None  # the shard for which this worker stops claiming
        self._drain_seconds, self._until, self._renew_at = drain_seconds, 0.0, 0.0
        self.waiting: dict[int, float] = {}  # shard to when its suspects began to wait for this worker
        self._again: dict[int, float] = {}  # shard to when another try is worth it

    @property
    def blocks(self) -> bool:
        """Whether the worker claims no healthy tasks."""
        return self.running or self.reserved is not None

    def note(self, shard: int, count: int, now: float) -> None:
        """Take note of how many suspects a shard has."""
        if count:
            self.waiting.setdefault(shard, now)
            return
        self.waiting.pop(shard, None)
        if self.reserved == shard:
            self.reserved = None

    def group_of(self, shards: Collection[int], now: float, *, hinted: bool) -> int | None:
        """Return the shard whose suspects an idle worker takes; healthy tasks that may be due go first."""
        if self.running:
            return None
        if self.reserved is not None:
            return self.reserved if self._worth(self.reserved, shards, now) else None
        waiting = [] if hinted else [shard for shard in self.waiting if self._worth(shard, shards, now)]
        return min(waiting, key=self.waiting.__getitem__, default=None)

    def room_for(self, shards: Collection[int], now: float) -> int | None:
        """Return the shard to reserve this worker for, now or still."""
        if self.reserved is not None:
            if now > self._until:
                # A handler does not end: leave these suspects to other workers.
                self.give_up(self.reserved, now, self._drain_seconds)
            elif now >= self._renew_at and self.reserved in shards:
                return self.reserved
            return None
        if self.running:
            return None
        return next((shard for shard in self.waiting if self._at(shard) <= now and shard in shards), None)

    def reserve(self, shard: int, now: float, *, granted: bool) -> None:
        """Stop claiming for the suspects of a shard, unless another worker does already."""
        if not granted:
            self.give_up(shard, now, PATIENCE_SECONDS)
            return
        if self.reserved is None:
            self._until = now + self._drain_seconds
        self.reserved, self._renew_at = shard, now + RENEW_SECONDS

    def give_up(self, shard: int, now: float, seconds: float) -> None:
        """Claim healthy tasks again, and leave the suspects of this shard alone for a while."""
        self.running, self.reserved = False, None
        self._again[shard] = now + seconds

    def begin(self) -> None:
        """Run nothing but the group that is asked for now."""
        self.running = True

    def end(self, now: float) -> None:
        """Claim healthy tasks again, for as long as suspects have to wait for a worker."""
        self.running, self.reserved = False, None
        self.waiting = dict.fromkeys(self.waiting, now)

    def next_in(self, shards: Collection[int], now: float) -> float:
        """Return the seconds until there is something to do for these shards; inf when there is not."""
        if self.running:
            return float("inf")
        if self.reserved is not None:
            return self._renew_at - now if self.reserved in shards else float("inf")
        return min((self._at(shard) for shard in self.waiting if shard in shards), default=float("inf")) - now

    def _at(self, shard: int) -> float:
        """When the worker stops claiming for a shard's suspects."""
        return max(self.waiting[shard] + PATIENCE_SECONDS, self._again.get(shard, 0.0))

    def _worth(self, shard: int, shards: Collection[int], now: float) -> bool:
        return shard in shards and self._again.get(shard, 0.0) <= now
