"""What the workers of one queue reported last: whether they can use the guard, and which keys they wait for. Pure.

The operator reads no Secrets, so it cannot know which keys they have. Workers run images that tenants choose: a worker
that reports nothing is ignored, and only keys that the spec names count. Not here: the texts of the conditions
(conditions.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from delayq.contract import metrics as table

from delayq_operator.scrape.backlog import missing_references
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS
from delayq_operator.scrape.lateness import StartedTasks
from delayq_operator.scrape.worker_stats import valid_values

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from delayq.contract.files import Reference

    from delayq_operator.base.objects import Sample

SEVERAL: Final = 2  # workers without the guard: from this number on, more workers would not help


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCounts:
    """How many workers report that they can use the guard, and how many that they cannot."""

    able: int = 0
    unable: int = 0

    @property
    def verdict(self) -> tuple[bool, bool]:
        """Whether some can, and whether some cannot."""
        return self.able > 0, self.unable > 0

    @property
    def down(self) -> bool:
        """Whether none can."""
        return self.verdict == (False, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the workers of a queue report, besides their statistics."""

    guard: GuardCounts = field(default_factory=GuardCounts)
    missing: tuple[Reference, ...] = ()
    """The keys of Secrets and ConfigMaps that they wait for."""
    started: StartedTasks = field(default_factory=StartedTasks)
    """Tasks that started in the last WINDOW_SECONDS."""

    @property
    def guard_down(self) -> bool:
        """Whether at least SEVERAL workers report and none can use the guard. One alone may be on a faulty node."""
        return self.guard.down and self.guard.unable >= SEVERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The last report of one worker."""

    at: float = 0.0
    guard: tuple[bool, ...] = ()
    """Whether it could use the guard, in its last two reports."""
    missing: tuple[Mapping[str, str], ...] = ()
    """The keys that it waits for, as labels."""

    def fresh(self, now: float) -> bool:
        return 0 <= now - self.at < FRESH_SECONDS

    @property
    def able(self) -> bool | None:
        """Whether it can use the guard; None: not known, for every worker says no until its first check."""
        return True if any(self.guard) else None if len(self.guard) <= 1 else False

    @property
    def doubted(self) -> bool:
        """Whether it said no once only."""
        return bool(self.guard) and not self.guard[-1] and self.able is not False

    def next(self, samples: Sequence[Sample], now: float) -> Report:
        """Return the report that follows this one."""
        up = valid_values(samples).get(table.WORKER_GUARD_UP.name)
        guard = () if up is None else (*self.guard[-1:], up >= 1)
        missing = tuple(has for name, has, _ in samples if name == table.MISSING_REFERENCES.name)
        return Report(at=now, guard=guard, missing=missing)


def guard_counts(reports: Iterable[Report], now: float) -> GuardCounts:
    """Count the workers that can use the guard, and those that cannot."""
    fresh = [each.able for each in reports if each.fresh(now)]
    return GuardCounts(able=fresh.count(True), unable=fresh.count(False))


def missing(reports: Iterable[Report], named: Collection[Reference], now: float) -> tuple[Reference, ...]:
    """Return what workers wait for of the keys that the spec names."""
    return missing_references(chain.from_iterable(each.missing for each in reports if each.fresh(now)), named)
