"""From what falls due to workers and lateness, span by span, by the model that scaling decides with. Pure.

Two courses of things are followed: one with as many workers as each span needs, where all that is left over for the
next is what still runs; and one with the most workers allowed, where a backlog stays until it is worked off.
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
"""Of a task: less than that is none. In the model the last of many never quite ends, and must not make another late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Who does the work, and how."""

    slots: int
    """Tasks that one worker runs at a time."""
    handler_seconds: float
    lateness_seconds: float
    """The objective."""
    workers: int
    """The most that there can be."""
    lead_seconds: float
    """Until a worker that is asked for now claims its first task."""

    @property
    def short_ms(self) -> int:
        """Tasks that fall due in so short a time count as falling due at once."""
        return max(100, round(self.lateness_seconds * 1000 / 4))


class Now(NamedTuple):
    """Where the queue stands."""

    at_ms: int
    overdue: int = 0
    oldest_overdue_ms: int = 0
    processing: int = 0


class Expected(NamedTuple):
    """One span of the forecast."""

    start_ms: int
    end_ms: int
    tasks: int
    """That fall due; in the first span, overdue ones as well."""
    workers: int
    """The fewest that begin all of them within the objective."""
    late_seconds: float
    """How late they begin with the most workers allowed; inf without any."""


def outlook(
    bins: Sequence[Bin], spans: Iterable[tuple[int, int]], now: Now, supply: Supply
) -> list[Expected]:
    """Follow both courses through all spans, the first of which begins now; each bin lies within one span."""
    ready = min(supply.workers, ceil(now.processing / supply.slots))  # a worker that holds leases is there
    allowed = Fleet(slots=supply.slots, ready=ready, lead_seconds=supply.lead_seconds).ramp(supply.workers)
    present = float(now.overdue + now.processing)
    needed, given = _Course(present, held=now.processing), _Course(present)
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


class _Course:
    """What is in the system from span to span."""

    def __init__(self, present: float, held: int = 0) -> None:
        self._present, self._held = present, held

    def staffed(self, inflows: Sequence[Inflow], seconds: float, supply: Supply) -> int:
        """Go through a span with as many workers as it needs, and return their number."""
        load = Load(
            present=self._present,
            held=self._held,
            inflows=inflows,
            handler_seconds=supply.handler_seconds,
        )
        workers = required(load, Fleet(slots=supply.slots), supply.lateness_seconds)
        self._through(load, seconds, [(0.0, workers * supply.slots)])
        self._held = min(round(self._present), workers * supply.slots)
        return workers

    def late(
        self, inflows: Sequence[Inflow], seconds: float, ramp: Ramp, supply: Supply, *, overdue: bool
    ) -> float:
        """Go through a span with these slots, and return how late tasks begin that come in it."""
        load = Load(present=self._present, inflows=inflows, handler_seconds=supply.handler_seconds)
        moments = self._through(load, seconds, ramp)
        coming = {at for inflow in inflows for at in (inflow.start, inflow.end)} | (
            {0.0} if overdue else set()
        )
        return max(
            (_late(moment, ramp[-1], supply) for moment in moments if moment.at in coming), default=0.0
        )

    def _through(self, load: Load, seconds: float, ramp: Ramp) -> list[Moment]:
        end = Load(
            present=load.present,
            inflows=[*load.inflows, Inflow(seconds, seconds, 0.0)],
            handler_seconds=load.handler_seconds,
        )
        found = list(course(end, ramp))
        self._present = found[-1].tasks if found[-1].tasks >= HALF else 0.0
        return found


def _inflows(bins: Iterable[Bin], start_ms: int, supply: Supply) -> list[Inflow]:
    """Return stretches as the model takes them: short ones at once, as they begin; others evenly."""
    found = []
    for each in bins:
        start, end = ((at - start_ms) / 1000 for at in (each.start_ms, each.end_ms))
        if each.tasks:
            found.append(Inflow(start, start if each.width_ms <= supply.short_ms else end, each.tasks))
    return found


def _from(ramp: Ramp, start: float) -> Ramp:
    """Return slots over time, seen from a later start."""
    there = max(at for at, _ in ramp if at <= start)
    return [(max(0.0, at - start), slots) for at, slots in ramp if at >= there]


def _late(moment: Moment, full: tuple[float, int], supply: Supply) -> float:
    """How late the last task begins: with the slots of the moment, or with all of them once they are there."""
    at, full_slots = full
    wait = max(0.0, at - moment.at)
    tasks = max(0.0, moment.tasks - HALF)
    now, then = (
        late_seconds(Moment(at, tasks, slots), supply.handler_seconds) for slots in (moment.slots, full_slots)
    )
    return min(now, wait + then)
