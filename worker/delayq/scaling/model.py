"""A deterministic fluid model of a queue with a number of workers. Pure; docs/explanation/scaling.md derives it.

Tasks arrive at once or at a constant rate, and leave at the rate of the busy slots. The objective is met if all tasks
in the system, waiting or running, fit into the slots times the rounds of handlers that start in that time:
X ≤ S x (1 + floor(L / 1.1 h)). With 0.4 s handlers and 1 s allowed, 100 slots start 300 in time.

Tasks that fall due before new workers can claim have used up part of that time, or all of it. Those that still wait
then must start within the rest of L, or soon after (allowed_seconds).

The search relies on monotonicity: more tasks never need fewer workers, and more workers never start tasks later.
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
"""A round of handlers takes a tenth longer than their mean: handlers differ, and claims take time."""

LATE_SHARE: Final = 0.25
"""New workers that arrive late may add a quarter to the lateness, up to the objective. Tasks that wait for 1 s must not
wait for 2 s; after 10 s, workers for the last tenth would soon be idle."""

REST: Final = 0.01
"""A remainder of a hundredth of a task requires no worker."""


class Inflow(NamedTuple):
    """Tasks that fall due in an interval."""

    start: float
    """Seconds from now."""
    end: float
    """Equal to `start` when all fall due at once."""
    tasks: float


class Moment(NamedTuple):
    """The system immediately after a change."""

    at: float
    tasks: float
    """In the system: waiting or running."""
    slots: int
    come: float = 0.0
    """All tasks that have arrived so far, including those that left."""


class Change(NamedTuple):
    """The changes of one instant."""

    at: float
    """Seconds from now."""
    fewer_slots: int
    """Negative: additional slots, which sort before other changes of the instant."""
    tasks: float = 0.0
    """Tasks that arrive at once."""
    rate: float = 0.0
    """Change of the arrival rate, tasks per second."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The tasks to run."""

    present: float
    """Tasks in the system now: due and in flight."""
    held: int = 0
    """Tasks in flight, which already have slots."""
    inflows: Sequence[Inflow] = ()
    handler_seconds: float
    kinds: Sequence[tuple[float, float]] = ()
    """Share of the tasks that are not in flight → their handler time, by kind. Empty: all take `handler_seconds`."""
    waited_seconds: float = 0.0
    """How long the oldest task that is present has been due."""

    @property
    def total(self) -> float:
        """All tasks."""
        return self.present + sum(inflow.tasks for inflow in self.inflows)

    def slots_at_once(self, lateness_seconds: float) -> float:
        """Return the slots that start all of it in time, if everything arrives at once."""
        if not self.kinds:
            return self.total / rounds(lateness_seconds, self.handler_seconds)
        slots = sum(share / rounds(lateness_seconds, seconds) for share, seconds in self.kinds)
        return self.held + (self.total - self.held) * slots

    @cached_property
    def changes(self) -> list[Change]:
        """Arrivals in order of time. Flows that end and start at the same time form one change."""
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
    """The workers: ready, starting, and possible after a lead time."""

    slots: int
    """Per worker."""
    ready: int = 0
    starting: int = 0
    starting_in: float = 0.0
    """Seconds."""
    lead_seconds: float = 0.0

    def ramp(self, replicas: int) -> list[tuple[float, int]]:
        """Return slots over time with so many workers requested now: (seconds, slots).

        There is a step at each time when additional workers could claim, even without a change.
        """
        steps = {0.0: min(replicas, self.ready)}
        if self.starting:
            steps[self.starting_in] = min(replicas, self.ready + self.starting)
        steps[max(self.lead_seconds, *steps)] = replicas
        return [(at, workers * self.slots) for at, workers in steps.items()]

    def reach(self, replicas: int) -> float:
        """Return when one more worker can claim: a ready one, a starting one, or a new one."""
        if replicas < self.ready:
            return 0.0
        return self.starting_in if replicas < self.ready + self.starting else self.lead_seconds


def passed(tasks: float, *, rate: float, slots: int, seconds: float, handler_seconds: float) -> float:
    """Return the tasks in the system after `seconds` with a constant arrival rate (per second).

    Full slots finish tasks at a constant rate; with fewer tasks than slots, each takes h on average.
    """
    if not slots:
        return tasks + rate * seconds
    if not handler_seconds:
        return 0.0
    growth = rate - slots / handler_seconds  # with all slots busy
    level = rate * handler_seconds  # the steady state with free slots
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
    """Yield the system after every change of slots and arrivals."""
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
    """Return how many handlers one slot can start in time, one after the other."""
    return 1 + lateness_seconds // (handler_seconds * RESERVE) if handler_seconds else inf


def late_seconds(moment: Moment, handler_seconds: float) -> float:
    """Return how late the last task in the system starts with constant slots."""
    if moment.tasks <= moment.slots + REST or not handler_seconds:
        return 0.0 if moment.slots or moment.tasks < 1 else inf
    return inf if not moment.slots else (ceil((moment.tasks - REST) / moment.slots) - 1) * handler_seconds


def required(load: Load, fleet: Fleet, lateness_seconds: float) -> int:
    """Return the fewest workers that start tasks in time, as far as additional workers can claim in time."""
    if load.total <= 0:
        return 0
    least = max(1, ceil(load.held / fleet.slots))
    # Enough even if all tasks arrive at once after any wait: no task is allowed less time than this.
    shortest = lateness_seconds * LATE_SHARE / (1 + LATE_SHARE)
    most = ceil(load.slots_at_once(shortest) / fleet.slots)
    enough = bisect_left(
        range(least, max(least, most) + 1),
        1,
        key=lambda replicas: int(suffices(replicas, load, fleet, lateness_seconds)),
    )
    return min(least + enough, max(least, most))


def suffices(replicas: int, load: Load, fleet: Fleet, lateness_seconds: float) -> bool:
    """Whether tasks start in time with so many workers.

    Tasks that start before an additional worker can claim are ignored.
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
    """Whether tasks that fell due before new workers arrive, and still wait then, start soon enough."""
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
    """Return how much longer a task may wait: until the objective, or slightly longer once it is missed."""
    late = min(lateness_seconds, waited_seconds * LATE_SHARE)
    return max(lateness_seconds - waited_seconds, late)
