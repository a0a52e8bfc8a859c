"""What a simulation came to: figures over all, and for every stretch of time. Pure data; how it looks is chart.py's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.scaling import Policy

    from benchmarks.simulation.run import Look, Run

STEPS_SECONDS: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200)
DAY: Final = 86_400


class Lateness(NamedTuple):
    """How late tasks began, in seconds; of those that fell due in some stretch."""

    p50: float
    p99: float
    worst: float


class Stretch(NamedTuple):
    """From one time to the next."""

    start: float
    """Seconds from the start of the simulation."""
    seconds: float
    due: int
    """Tasks that fell due in it."""
    late: Lateness | None
    """None: nothing fell due."""
    look: Look
    """The readings at its start, or right before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures over a whole simulation."""

    name: str
    done_seconds: float
    """From the first due time to the end of the last handler."""
    tasks: int
    early: int
    late: Lateness | None
    in_time_percent: float
    """Tasks that began within objective.latenessMilliseconds."""
    met: bool
    """Whether that is as many as objective.percentile asks for."""
    most_workers: int
    pod_hours: float
    busy_percent: float
    """Of the slots that were paid for, how much was used."""
    ups: int
    downs: int


def percentile(ranked: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values."""
    return ranked[max(0, ceil(percent / 100 * len(ranked)) - 1)]


def lateness(run: Run, start: int = 0, end: int | None = None) -> list[float]:
    """Return how late tasks began, sorted; `start` and `end` are places in the order of due times."""
    began, due = run.plant.began[start:end], run.tasks.due[start:end]
    return sorted(map(float.__sub__, began, due))


def summarized(ranked: Sequence[float]) -> Lateness | None:
    """Return the figures people ask for."""
    if not ranked:
        return None
    return Lateness(percentile(ranked, 50), percentile(ranked, 99), ranked[-1])


def summary(run: Run, policy: Policy) -> Summary:
    """Sum a simulation up."""
    ranked = lateness(run)
    in_time = bisect_right(ranked, policy.lateness_seconds)
    share = 100 * in_time / len(ranked) if ranked else 100.0
    pods = run.plant.pod_seconds(run.end)
    return Summary(
        name=run.name,
        done_seconds=_done(run),
        tasks=len(run.tasks),
        early=bisect_left(ranked, 0.0),
        late=summarized(ranked),
        in_time_percent=share,
        met=share >= policy.percentile,
        most_workers=max(look.replicas for look in run.looks),
        pod_hours=pods / 3600,
        busy_percent=100 * run.tasks.work_seconds / (pods * policy.slots) if pods else 0.0,
        ups=sum(1 for change in run.changes if change.after > change.before),
        downs=sum(1 for change in run.changes if change.after < change.before),
    )


def _done(run: Run) -> float:
    ends = map(float.__add__, run.plant.began, run.tasks.handler_seconds)
    return max(ends, default=0.0) - (run.tasks.due[0] if len(run.tasks) else 0.0)


def step_seconds(span: float, most: int) -> int:
    """Return a round length that cuts a span into no more than so many stretches."""
    found = next((step for step in STEPS_SECONDS if span / step <= most), None)
    return found or DAY * ceil(span / DAY / most)


def stretches(run: Run, starts: Sequence[float], end: float) -> list[Stretch]:
    """Cut a simulation at `starts`, which rise."""
    due, found = run.tasks.due, []
    times = [look.at for look in run.looks]
    for start, after in zip(starts, [*starts[1:], end], strict=True):
        # What falls due at the very end still counts there.
        first = bisect_left(due, start)
        last = bisect_left(due, after) if after < end else len(due)
        look = run.looks[max(0, bisect_right(times, start) - 1)]
        found.append(
            Stretch(start, after - start, last - first, summarized(lateness(run, first, last)), look)
        )
    return found


def evenly(end: float, step: float) -> list[float]:
    """Return 0, step, 2 steps … below the end."""
    return [step * number for number in range(max(1, ceil(end / step)))]
