"""How a queue fares with so many workers: a deterministic fluid model. Pure; docs/explanation/scaling.md derives it.

Tasks come in clumps or as a steady flow, and leave at the rate that busy slots allow. A task waits no longer than the
objective allows if all tasks in the system, waiting or running, fit into the slots times the rounds of handlers that
begin in that time: X ≤ S x (1 + floor(L / 1.1 h)). With 0.4 s handlers and 1 s allowed, 100 slots begin 300 in time.

Tasks that fall due before help can arrive have used up part of that time, or all of it. What is left of them then has
to begin within the rest of L, or soon after help arrives (allowed_seconds).

More tasks never need fewer workers, and more workers are never later: both are what the search relies on.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESERVE: Final = 1.1
"""A round of handlers takes a tenth longer than their mean: they differ, and a claim takes its time."""

LATE_SHARE: Final = 0.25
"""Help that arrives late may add a quarter to the lateness, up to the objective. Tasks that wait for 1 s must not wait
for 2 s; after 10 s, workers for the last tenth would be idle a moment later."""

REST: Final = 0.01
"""A remainder of a hundredth of a task requires no worker."""


class Inflow(NamedTuple):
    """Tasks that fall due in a stretch of time."""

    start: float
    """Seconds from now."""
    end: float
    """The same as `start` when they fall due all at once."""
    tasks: float


class Moment(NamedTuple):
    """The system right after something changed."""

    at: float
    tasks: float
    """In the system: waiting or running."""
    slots: int
    come: float = 0.0
    """All tasks that were in the system up to now, those that left it included."""


class Change(NamedTuple):
    """What happens at one time."""

    at: float
    """Seconds from now."""
    fewer_slots: int
    """Negative for more of them: of what happens at once, more slots come first."""
    tasks: float = 0.0
    """That many more at once."""
    rate: float = 0.0
    """Tasks per second more from now on."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What there is to do."""

    present: float
    """Tasks in the system now: overdue and in flight."""
    held: int = 0
    """Of those, how many are running: their slots are taken whatever happens."""
    inflows: Sequence[Inflow] = ()
    handler_seconds: float
    waited_seconds: float = 0.0
    """How long the oldest task that is present has been due."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.present + sum(inflow.tasks for inflow in self.inflows)

    @cached_property
    def changes(self) -> list[Change]:
        """What comes, in its order. Where one flow ends and the next begins, that is one change."""
        found: dict[float, tuple[float, float]] = {}
        for start, end, tasks in self.inflows:
            at_once, rate = (0.0, tasks / (end - start)) if end > start else (tasks, 0.0)
            more, faster = found.get(start, (0.0, 0.0))
            found[start] = more + at_once, faster + rate
            if rate:
                more, faster = found.get(end, (0.0, 0.0))
                found[end] = more, faster - rate
        return [Change(at, 0, *found[at]) for at in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Who is there to do it: workers that are ready, some on their way, more in a lead time."""

    slots: int
    """Per worker."""
    ready: int = 0
    starting: int = 0
    starting_in: float = 0.0
    """Seconds."""
    lead_seconds: float = 0.0

    def ramp(self, replicas: int) -> list[tuple[float, int]]:
        """Slots over time if so many workers are asked for now: from when (seconds), how many.

        There is a step wherever more workers could make a difference, even if these are no more.
        """
        steps = {0.0: min(replicas, self.ready)}
        if self.starting:
            steps[self.starting_in] = min(replicas, self.ready + self.starting)
        steps[max(self.lead_seconds, *steps)] = replicas
        return [(at, workers * self.slots) for at, workers in steps.items()]

    def reach(self, replicas: int) -> float:
        """From when on one worker more would help: one that is ready, is on its way, or has to be asked for."""
        if replicas < self.ready:
            return 0.0
        return self.starting_in if replicas < self.ready + self.starting else self.lead_seconds


def passed(tasks: float, *, rate: float, slots: int, seconds: float, handler_seconds: float) -> float:
    """Return what is in the system after a time in which tasks came at a constant rate (per second).

    Full slots finish at a constant rate; while there are fewer tasks than slots, each is done after h on average.
    """
    if not slots:
        return tasks + rate * seconds
    if not handler_seconds:
        return 0.0
    growth = rate - slots / handler_seconds  # with all slots busy
    level = rate * handler_seconds  # where it settles with slots to spare
    if tasks > slots:
        full = inf if growth >= 0 else (tasks - slots) / -growth
        if seconds <= full:
            return tasks + growth * seconds
        return level + (slots - level) * exp((full - seconds) / handler_seconds)
    filled = handler_seconds * log((level - tasks) / (level - slots)) if growth > 0 else inf
    if seconds <= filled:
        return level + (tasks - level) * exp(-seconds / handler_seconds)
    return slots + growth * (seconds - filled)


def course(load: Load, ramp: Sequence[tuple[float, int]]) -> Iterator[Moment]:
    """Follow the system through every change: of the slots, of what comes."""
    tasks, slots, rate, now = load.present, 0, 0.0, 0.0
    come = load.present
    for at, fewer_slots, more_tasks, more_rate in sorted([*_steps(ramp), *load.changes]):
        if at > now:
            come += max(0.0, rate) * (at - now)
            tasks = passed(
                tasks,
                rate=max(0.0, rate),
                slots=slots,
                seconds=at - now,
                handler_seconds=load.handler_seconds,
            )
        tasks, slots, rate, now = tasks + more_tasks, slots - fewer_slots, rate + more_rate, at
        come += more_tasks
        yield Moment(at, tasks, slots, come)


def _steps(ramp: Sequence[tuple[float, int]]) -> Iterator[Change]:
    before = 0
    for at, slots in ramp:
        yield Change(at, before - slots)
        before = slots


def rounds(lateness_seconds: float, handler_seconds: float) -> float:
    """How many handlers one slot can begin in time, one after the other."""
    return 1 + lateness_seconds // (handler_seconds * RESERVE) if handler_seconds else inf


def late_seconds(moment: Moment, handler_seconds: float) -> float:
    """How late the last task in the system begins, if the slots stay as they are."""
    if moment.tasks <= moment.slots + REST or not handler_seconds:
        return 0.0 if moment.slots or moment.tasks < 1 else inf
    return inf if not moment.slots else (ceil((moment.tasks - REST) / moment.slots) - 1) * handler_seconds


def required(load: Load, fleet: Fleet, lateness_seconds: float) -> int:
    """Return the fewest workers with which tasks begin in time, wherever workers can still make a difference."""
    if load.total <= 0:
        return 0
    least = max(1, ceil(load.held / fleet.slots))
    # Enough even if all came at once, and whatever they waited: a task is never allowed less than this.
    shortest = lateness_seconds * LATE_SHARE / (1 + LATE_SHARE)
    most = ceil(load.total / (fleet.slots * rounds(shortest, load.handler_seconds)))
    enough = bisect_left(
        range(least, max(least, most) + 1),
        1,
        key=lambda replicas: int(suffices(replicas, load, fleet, lateness_seconds)),
    )
    return min(least + enough, max(least, most))


def suffices(replicas: int, load: Load, fleet: Fleet, lateness_seconds: float) -> bool:
    """Whether tasks begin in time with so many workers.

    What the workers there have begun before a new one can arrive is out of its reach: no reason to ask for one.
    """
    reach = fleet.reach(replicas)
    moments = [Moment(-load.waited_seconds, load.present, 0, load.present)]
    moments += course(load, fleet.ramp(replicas))
    after = [moment for moment in moments if moment.at >= reach and moment.slots]
    bound = rounds(lateness_seconds, load.handler_seconds)
    return all(moment.tasks <= moment.slots * bound + REST for moment in after) and (
        not after or _carried(moments, after[0], load, lateness_seconds)
    )


def _carried(moments: Sequence[Moment], arrival: Moment, load: Load, lateness_seconds: float) -> bool:
    """Whether the tasks that fell due before help arrives, and still wait then, begin soon enough."""
    done = arrival.come - arrival.tasks
    return all(
        moment.come - done
        <= arrival.slots
        * rounds(allowed_seconds(arrival.at - moment.at, lateness_seconds), load.handler_seconds)
        + REST
        for moment in moments
        if moment.at < arrival.at
    )


def allowed_seconds(waited_seconds: float, lateness_seconds: float) -> float:
    """Return how much longer a task may wait: until the objective, or a little more where that has passed."""
    late = min(lateness_seconds, waited_seconds * LATE_SHARE)
    return max(lateness_seconds - waited_seconds, late)
