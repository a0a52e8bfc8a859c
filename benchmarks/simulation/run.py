"""One simulation from its first look to the last worker's end. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.simulation.outlook import Outlook

if TYPE_CHECKING:
    from delayq.scaling import Decision

    from benchmarks.simulation.pilot import Pilot
    from benchmarks.simulation.plant import Plant
    from benchmarks.simulation.tasks import Tasks

MOST_LOOKS: Final = 500_000
"""A few minutes of computing; with decisions every 2 s, eleven days of virtual time."""


class Look(NamedTuple):
    """The readings at one time, right after the number was set."""

    at: float
    """Seconds from the start."""
    overdue: int
    in_flight: int
    replicas: int
    ready: int
    leaving: int
    """Workers that finish what they have."""


class Change(NamedTuple):
    """A number of workers that became another."""

    at: float
    """Seconds from the start."""
    before: int
    after: int
    decision: Decision | None
    """None: it was not delayq's."""


@dataclass(slots=True)
class Run:
    """Everything that happened."""

    name: str
    tasks: Tasks
    plant: Plant
    looks: list[Look] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def end(self) -> float:
        """Seconds from the start to the last look."""
        return self.looks[-1].at if self.looks else 0.0


class TooLong(ValueError):
    """More virtual time than a simulation takes."""


def simulate(tasks: Tasks, pilot: Pilot, plant: Plant) -> Run:
    """Run until every task is done and the workers are as few as they will be."""
    run, outlook = Run(pilot.name, tasks, plant), Outlook(tasks)
    replicas = len(plant.staff)
    quiet_since, number = 0.0, 0
    while len(run.looks) < MOST_LOOKS:
        plant.advance(number * pilot.period_seconds)
        step = pilot.look(plant, outlook)
        if step.replicas != replicas:
            run.changes.append(Change(plant.now, replicas, step.replicas, step.decision))
            plant.scale(step.replicas)
            replicas = step.replicas
        run.looks.append(_look(plant, outlook))
        if plant.finished < len(tasks):
            quiet_since = plant.now
        elif not replicas or plant.now - quiet_since > pilot.patience_seconds:
            return run
        number += 1
    raise TooLong(
        f"expected at most {MOST_LOOKS:,} decisions, after which {len(tasks) - plant.finished:,} tasks remained"
    )


def refuse_too_long(tasks: Tasks, *, slots: int, period_seconds: float) -> None:
    """Raise TooLong if it is plain from the start: for the span of due times, or the work at `slots` at a time."""
    seconds = max(tasks.due[-1] if len(tasks) else 0.0, tasks.work_seconds / max(1, slots))
    looks = ceil(seconds / period_seconds)
    if looks > MOST_LOOKS:
        raise TooLong(f"expected at most {MOST_LOOKS:,} decisions, this would be at least {looks:,}")


def _look(plant: Plant, outlook: Outlook) -> Look:
    starting = len(plant.starting)
    return Look(
        at=plant.now,
        overdue=outlook.fallen_due(plant.now) - plant.claimed,
        in_flight=plant.in_flight,
        replicas=len(plant.staff),
        ready=len(plant.staff) - starting,
        leaving=plant.leaving,
    )
