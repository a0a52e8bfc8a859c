"""How a queue would fare with so many workers: a deterministic fluid model. Pure; docs/scaling.md derives it.

Tasks in the system (waiting or running) come in clumps and leave at the rate that busy slots allow. A task waits no
longer than the objective allows if all tasks in the system fit into the slots times the rounds of handlers that can
begin in that time: X ≤ S x (1 + floor(L / h)). With 0.5 s handlers and 1 s allowed, 100 slots begin 300 tasks in time.

More tasks never need fewer workers, and more workers are never later: both are what the search relies on.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, exp, inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Clump(NamedTuple):
    """Tasks that fall due at one time."""

    at: float
    """Seconds from now."""
    tasks: float


class Moment(NamedTuple):
    """The system right after something came or began to serve."""

    at: float
    tasks: float
    """In the system: waiting or running."""
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What there is to do."""

    present: float
    """Tasks in the system now: overdue and in flight."""
    clumps: Sequence[Clump]
    """What is to come, in its order."""
    handler_seconds: float
    held: int = 0
    """Of those present, how many are running: their slots are taken whatever happens."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.present + sum(clump.tasks for clump in self.clumps)


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
        """Slots over time if so many workers are asked for now: from when (seconds), how many."""
        steps = [(0.0, min(replicas, self.ready))]
        if self.starting and replicas > self.ready:
            steps.append((self.starting_in, min(replicas, self.ready + self.starting)))
        if replicas > steps[-1][1]:
            steps.append((max(self.lead_seconds, steps[-1][0]), replicas))
        return [(at, workers * self.slots) for at, workers in steps]


def drained(tasks: float, slots: int, seconds: float, handler_seconds: float) -> float:
    """Return what is left in the system after a time in which nothing came.

    Full slots finish at a constant rate; once there are fewer tasks than slots, each is done after h on average.
    """
    if not tasks or not slots:
        return tasks
    if not handler_seconds:
        return 0.0
    if tasks > slots:
        full = (tasks - slots) * handler_seconds / slots
        if seconds <= full:
            return tasks - seconds * slots / handler_seconds
        tasks, seconds = slots, seconds - full
    return tasks * exp(-seconds / handler_seconds)


def course(load: Load, ramp: Sequence[tuple[float, int]]) -> Iterator[Moment]:
    """Follow the system through every clump and every step of the ramp."""
    events = sorted([*((at, 0.0, slots) for at, slots in ramp), *((c.at, c.tasks, -1) for c in load.clumps)])
    tasks, slots, now = load.present, 0, 0.0
    for at, come, new_slots in events:
        tasks = drained(tasks, slots, at - now, load.handler_seconds) + come
        slots, now = slots if new_slots < 0 else new_slots, at
        yield Moment(at, tasks, slots)


def rounds(lateness_seconds: float, handler_seconds: float) -> float:
    """How many handlers one slot can begin in time, one after the other."""
    return inf if not handler_seconds else 1 + lateness_seconds // handler_seconds


def late_seconds(moment: Moment, handler_seconds: float) -> float:
    """How late the last task in the system begins, if the slots stay as they are."""
    if moment.tasks <= moment.slots or not handler_seconds:
        return 0.0 if moment.slots or moment.tasks < 1 else inf
    return inf if not moment.slots else (ceil(moment.tasks / moment.slots) - 1) * handler_seconds


def required(load: Load, fleet: Fleet, lateness_seconds: float) -> int:
    """Return the fewest workers with which tasks begin in time, wherever workers can still make a difference."""
    if load.total <= 0:
        return 0
    most = max(1, ceil(load.total / fleet.slots))  # a slot for each task
    least = max(1, ceil(load.held / fleet.slots))
    enough = bisect_left(
        range(least, max(least, most) + 1),
        1,
        key=lambda replicas: int(suffices(replicas, load, fleet, lateness_seconds)),
    )
    return min(least + enough, max(least, most))


def suffices(replicas: int, load: Load, fleet: Fleet, lateness_seconds: float) -> bool:
    """Whether tasks begin in time with so many workers.

    What falls due before a new worker could be there is out of its reach, so it is no reason to ask for one.
    """
    reach = 0.0 if replicas < fleet.ready else fleet.lead_seconds
    bound = rounds(lateness_seconds, load.handler_seconds)
    return all(
        moment.tasks <= moment.slots * bound
        for moment in course(load, fleet.ramp(replicas))
        if moment.at >= reach and moment.slots
    )
