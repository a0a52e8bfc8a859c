"""When a worker runs suspects: tasks whose lease expired. It runs them in groups, and nothing else meanwhile. Pure.

An idle worker takes a group at once. If no worker is idle, one per shard stops claiming until its tasks have ended.
Between two groups it claims healthy tasks, so that neither kind delays the other.
Not here: how groups are formed and halved (isolate.lua).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

IDLE_WORKER_SECONDS = 2.0  # for how long suspects wait for an idle worker
RENEW_SECONDS = 0.5  # between two renewals of a reservation, and before the next try for a group
RESERVED_MS = 3000  # duration of a reservation without renewal


class Suspects:
    """One worker's view of suspects. Times are monotonic seconds."""

    def __init__(self, drain_seconds: float) -> None:
        """No suspects yet. `drain_seconds` is the longest time in which running tasks should end."""
        self.owner = secrets.token_hex(8)
        self.running = False  # a group runs, or is about to
        self.reserved: int | None = None  # the shard for which this worker stops claiming
        self._drain_seconds, self._until, self._renew_at = drain_seconds, 0.0, 0.0
        self.waiting: dict[int, float] = {}  # shard to when its suspects began to wait for this worker
        self._retry_at: dict[int, float] = {}  # shard to the next try

    @property
    def blocks(self) -> bool:
        """Whether the worker claims no healthy tasks."""
        return self.running or self.reserved is not None

    def note(self, shard: int, count: int, now: float) -> None:
        """Record the number of suspects of a shard."""
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
            return self.reserved if self._eligible(self.reserved, shards, now) else None
        waiting = [] if hinted else [shard for shard in self.waiting if self._eligible(shard, shards, now)]
        return min(waiting, key=self.waiting.__getitem__, default=None)

    def room_for(self, shards: Collection[int], now: float) -> int | None:
        """Return the shard whose reservation of this worker to take or renew now."""
        if self.reserved is not None:
            if now > self._until:
                # A handler does not end: leave these suspects to other workers.
                self.give_up(self.reserved, now, self._drain_seconds)
            elif now >= self._renew_at and self.reserved in shards:
                return self.reserved
            return None
        if self.running:
            return None
        return next(
            (shard for shard in self.waiting if self._reserve_at(shard) <= now and shard in shards), None
        )

    def reserve(self, shard: int, now: float, *, granted: bool) -> None:
        """Stop claiming for the suspects of a shard, unless another worker has its reservation."""
        if not granted:
            self.give_up(shard, now, IDLE_WORKER_SECONDS)
            return
        if self.reserved is None:
            self._until = now + self._drain_seconds
        self.reserved, self._renew_at = shard, now + RENEW_SECONDS

    def give_up(self, shard: int, now: float, seconds: float) -> None:
        """Claim healthy tasks again, and ignore the suspects of this shard for `seconds`."""
        self.running, self.reserved = False, None
        self._retry_at[shard] = now + seconds

    def begin(self) -> None:
        """Run nothing but the group that is claimed now."""
        self.running = True

    def end(self, now: float) -> None:
        """Claim healthy tasks again; suspects wait anew for an idle worker."""
        self.running, self.reserved = False, None
        self.waiting = dict.fromkeys(self.waiting, now)

    def next_in(self, shards: Collection[int], now: float) -> float:
        """Return the seconds until the next action for these shards; inf without any."""
        if self.running:
            return float("inf")
        if self.reserved is not None:
            return self._renew_at - now if self.reserved in shards else float("inf")
        times = (self._reserve_at(shard) for shard in self.waiting if shard in shards)
        return min(times, default=float("inf")) - now

    def _reserve_at(self, shard: int) -> float:
        """Return when the worker stops claiming for a shard's suspects."""
        return max(self.waiting[shard] + IDLE_WORKER_SECONDS, self._retry_at.get(shard, 0.0))

    def _eligible(self, shard: int, shards: Collection[int], now: float) -> bool:
        return shard in shards and self._retry_at.get(shard, 0.0) <= now
