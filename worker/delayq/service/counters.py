"""The counters of a process: plain integers, cheap enough for every task. metrics.py exports them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq.contract import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delayq.contract.files import Reference


class Buckets:
    """A histogram of seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` are the upper bounds; an additional bucket counts larger values."""
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def observe_equal(self, seconds: float, times: int) -> None:
        """Count the same value several times."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times


class KindCounters:
    """What became of the tasks of one kind."""

    __slots__ = ("runs", "seconds", "settled")

    def __init__(self) -> None:
        """Start at zero."""
        self.runs, self.seconds = 0, 0.0
        self.settled: Counter[str] = Counter()  # by outcome


class CountersByKind(dict[str, KindCounters]):
    """The counters of each kind. Tasks can have any number of kinds, so those beyond a limit share one entry."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: kinds that always have an entry, those of the handler."""
        super().__init__({kind: KindCounters() for kind in known})

    def __missing__(self, kind: str) -> KindCounters:
        """Add a kind, or return the shared entry."""
        if len(self) >= metrics.MOST_KINDS:
            kind = metrics.OTHER_KINDS
        return self.setdefault(kind, KindCounters())


@dataclass
class ProcessCounters:
    """The counters of every process."""

    process: str  # scanner, worker, reaper, eraser or api
    queue: str
    redis_errors: int = 0
    loop_errors: Counter[str] = field(default_factory=Counter)
    lacks: Callable[[], Mapping[Reference, str]] = dict
    """Looks at the mounted files of HTTP services: those that cannot be used yet, and why."""


@dataclass
class WorkerCounters(ProcessCounters):
    """The counters of a worker."""

    slots: int = 0
    busy: int = 0
    unusable: int = 0
    first_claim: float | None = None  # Unix seconds
    claimed: int = 0
    extended: int = 0
    leases_lost: int = 0
    handler_timeouts: int = 0
    guard_up: bool | None = None  # None without a guard
    guarded: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    due_to_claimed: Buckets = field(default_factory=lambda: Buckets(metrics.LATENESS_BUCKETS))
    claimed_to_started: Buckets = field(default_factory=lambda: Buckets(metrics.LATENESS_BUCKETS))
    kinds: CountersByKind = field(default_factory=CountersByKind)
    blocked_seconds: float = 0.0  # the last time that a coroutine blocked the event loop
    blocked_at: float = float("-inf")  # monotonic seconds: when it still did
    handler: Buckets = field(default_factory=lambda: Buckets(metrics.HANDLER_BUCKETS))

    def note_blocked(self, seconds: float) -> None:
        """Record that the event loop is blocked, so far for `seconds`."""
        self.blocked_seconds, self.blocked_at = seconds, time.monotonic()

    @property
    def recently_blocked_seconds(self) -> float:
        """How long the event loop was blocked, until some minutes afterwards; 0 otherwise."""
        recently = time.monotonic() - self.blocked_at < metrics.BLOCKED_FOR_SECONDS
        return self.blocked_seconds if recently else 0.0
