"""What the scanners of a queue say of it: one reading of their metrics, summed over shards. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delayq_operator.objects import Sample


SAME_SECONDS: Final = 5.0  # a due time is read as so many seconds from now, each time a little differently


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The tasks of a queue and the state of its Redis, as of `read_at`."""

    read_at: float
    """Unix seconds."""
    due: int = 0
    scheduled: int = 0
    in_flight: int = 0
    dead: int = 0
    oldest_due_at: float | None = None
    """Unix seconds; None when nothing is overdue."""
    next_due_at: float | None = None
    """Unix seconds; None when nothing waits."""
    whole: bool = False
    """Whether every shard has a leader and is in the numbers."""
    redis_up: bool = False
    risks: tuple[str, ...] = ()
    """Of contract.metrics.DURABILITY_RISKS, those that hold."""

    def is_news(self, before: Backlog | None) -> bool:
        """Whether anything but the clock went on since `before`. Where tasks are due, lateness grows by itself."""
        if before is None or self.due:
            return True
        if abs((self.next_due_at or 0) - (before.next_due_at or 0)) > SAME_SECONDS:
            return True
        return replace(before, read_at=self.read_at, oldest_due_at=None, next_due_at=self.next_due_at) != self


class Reading:
    """Samples of the scanners of one queue, each shard's from one scanner only."""

    def __init__(self, expositions: Iterable[Sequence[Sample]]) -> None:
        """Take what leaders say of their shards: a standby has no numbers, and for an instant two may lead."""
        self._values: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        self._shards: set[str] = set()
        self._counted: set[str] = set()
        for samples in expositions:
            self._take(samples)

    @property
    def whole(self) -> bool:
        """Whether each shard has a leader among the scanners."""
        return bool(self._shards) and self._counted == self._shards

    def _take(self, samples: Sequence[Sample]) -> None:
        leads = {labels["shard"]: value for name, labels, value in samples if name == table.SHARD_LED.name}
        # A leader that Redis does not serve has no numbers, which is not the same as zero.
        told = {labels["shard"] for name, labels, _ in samples if name == table.TASKS.name}
        ours = {shard for shard, value in leads.items() if value == 1 and shard in told} - self._counted
        self._shards |= leads.keys()
        self._counted |= ours
        for name, labels, value in samples:
            if "shard" not in labels or labels["shard"] in ours:
                self._values[name].append((labels, value))

    def total(self, metric: table.Metric, **labels: str) -> int:
        """Sum over shards."""
        return int(sum(self.values(metric, **labels)))

    def values(self, metric: table.Metric, **labels: str) -> list[float]:
        """Every value of a metric with these labels; NaN stands for none."""
        return [
            value
            for has, value in self._values[metric.name]
            if not math.isnan(value) and labels.items() <= has.items()
        ]

    def holding(self, metric: table.Metric, label: str) -> tuple[str, ...]:
        """Values of a label for which the metric is 1."""
        return tuple(sorted({has[label] for has, value in self._values[metric.name] if value == 1}))


def backlog(reading: Reading, now: float) -> Backlog:
    """Sum a reading up; `now` in Unix seconds."""
    overdue = max(reading.values(table.OLDEST_OVERDUE_SECONDS), default=0.0)
    next_due = min(reading.values(table.NEXT_DUE_SECONDS), default=None)
    due = reading.total(table.OVERDUE_TASKS)
    waiting = reading.total(table.TASKS, state="delayed") + reading.total(table.TASKS, state="retry")
    return Backlog(
        read_at=now,
        due=due,
        scheduled=max(0, waiting - due),
        in_flight=reading.total(table.TASKS, state="processing"),
        dead=reading.total(table.TASKS, state="dlq"),
        oldest_due_at=now - overdue if due and overdue > 0 else None,
        next_due_at=None if next_due is None else now + max(0.0, next_due),
        whole=reading.whole,
        redis_up=any(reading.values(table.REDIS_UP)),
        risks=reading.holding(table.DURABILITY_RISK, "risk"),
    )
