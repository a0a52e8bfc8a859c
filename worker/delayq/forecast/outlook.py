"""Compute workers and lateness for each span, with the model of delayq/scaling. Pure.

It simulates the queue twice: with the workers that each span needs, where only running tasks carry over to the next
span; and with the maximum number of workers, where the backlog carries over.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.scaling.model import Fleet, Inflow, Load, Moment, course, late_seconds, required

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delayq.forecast.histogram import Bin

Ramp = list[tuple[float, int]]
HALF: Final = 0.5
"""Fewer tasks than this count as none. In the model, the last task ends only asymptotically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Workers and handlers."""

    slots: int
    """Tasks that one worker runs at a time."""
    handler_seconds: float
    lateness_seconds: float
    """The objective."""
    workers: int
    """Maximum number of workers."""
    lead_seconds: float
    """Time from the creation of a worker to its first claim."""

    @property
    def short_ms(self) -> int:
        """Tasks that fall due within this time count as simultaneous."""
        return max(100, round(self.lateness_seconds * 1000 / 4))


class Now(NamedTuple):
    """Current state of the queue."""

    at_ms: int
    overdue: int = 0
    oldest_overdue_ms: int = 0
    processing: int = 0


class Expected(NamedTuple):
    """One span of the forecast."""

    start_ms: int
    end_ms: int
    tasks: int
    """Tasks that fall due; in the first span, also overdue ones."""
    workers: int
    """Fewest workers that start all tasks within the objective."""
    late_seconds: float
    """Greatest lateness with the maximum number of workers; inf without workers."""


def outlook(
    bins: Sequence[Bin], spans: Iterable[tuple[int, int]], now: Now, supply: Supply
) -> list[Expected]:
    """Run both simulations over all spans. The first span begins now; each bin is within one span."""
    ready = min(supply.workers, ceil(now.processing / supply.slots))  # workers with leases are running
    allowed = Fleet(slots=supply.slots, ready=ready, lead_seconds=supply.lead_seconds).ramp(supply.workers)
    present = float(now.overdue + now.processing)
    needed, given = _Simulation(present, held=now.processing), _Simulation(present)
    found: list[Expected] = []
    for start, end in spans:
        inflows = _inflows((each for each in bins if start <= each.start_ms < end), start, supply)
        tasks = sum(round(inflow.tasks) for inflow in inflows)
        workers = needed.staffed(inflows, (end - start) / 1000, supply)
        ramp = _from(allowed, (start - now.at_ms) / 1000)
        late = given.late(inflows, (end - start) / 1000, ramp, supply, overdue=not found and now.overdue > 0)
        if not found and now.overdue:
            tasks += now.overdue
            late = max(late, now.oldest_overdue_ms / 1000 + next((at for at, slots in ramp if slots), inf))
        found.append(Expected(start, end, tasks, workers, late))
    return found


class _Simulation:
    """Tasks in the system from span to span."""

    def __init__(self, present: float, held: int = 0) -> None:
        self._present, self._held = present, held

    def staffed(self, inflows: Sequence[Inflow], seconds: float, supply: Supply) -> int:
        """Simulate a span with the workers that it needs, and return their number."""
        load = Load(
            present=self._present,
            held=self._held,
            inflows=inflows,
            handler_seconds=supply.handler_seconds,
        )
        workers = required(load, Fleet(slots=supply.slots), supply.lateness_seconds)
        self._advance(load, seconds, [(0.0, workers * supply.slots)])
        self._held = min(round(self._present), workers * supply.slots)
        return workers

    def late(
        self, inflows: Sequence[Inflow], seconds: float, ramp: Ramp, supply: Supply, *, overdue: bool
    ) -> float:
        """Simulate a span with these slots, and return the greatest lateness of its tasks."""
        load = Load(present=self._present, inflows=inflows, handler_seconds=supply.handler_seconds)
        moments = self._advance(load, seconds, ramp)
        coming = {at for inflow in inflows for at in (inflow.start, inflow.end)} | (
            {0.0} if overdue else set()
        )
        return max(
            (_late(moment, ramp[-1], supply) for moment in moments if moment.at in coming), default=0.0
        )

    def _advance(self, load: Load, seconds: float, ramp: Ramp) -> list[Moment]:
        end = Load(
            present=load.present,
            inflows=[*load.inflows, Inflow(seconds, seconds, 0.0)],
            handler_seconds=load.handler_seconds,
        )
        found = list(course(end, ramp))
        self._present = found[-1].tasks if found[-1].tasks >= HALF else 0.0
        return found


def _inflows(bins: Iterable[Bin], start_ms: int, supply: Supply) -> list[Inflow]:
    """Convert bins for the model: tasks of a short bin arrive at its start, those of others evenly."""
    found = []
    for each in bins:
        start, end = ((at - start_ms) / 1000 for at in (each.start_ms, each.end_ms))
        if each.tasks:
            found.append(Inflow(start, start if each.width_ms <= supply.short_ms else end, each.tasks))
    return found


def _from(ramp: Ramp, start: float) -> Ramp:
    """Return the ramp relative to a later start."""
    there = max(at for at, _ in ramp if at <= start)
    return [(max(0.0, at - start), slots) for at, slots in ramp if at >= there]


def _late(moment: Moment, full: tuple[float, int], supply: Supply) -> float:
    """Return the lateness of the last task, with the present slots or with all slots once they are ready."""
    at, full_slots = full
    wait = max(0.0, at - moment.at)
    tasks = max(0.0, moment.tasks - HALF)
    now, then = (
        late_seconds(Moment(at, tasks, slots), supply.handler_seconds) for slots in (moment.slots, full_slots)
    )
    return min(now, wait + then)
