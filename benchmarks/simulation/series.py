"""A simulation as rows of numbers over equal stretches of time, for charts. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.simulation.run import Look, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number for each interval: the largest in it."""

    load: Sequence[float]
    """Tasks that fell due, a second."""
    capacity: Sequence[float]
    """Tasks that the workers which are ready can do, a second."""
    replicas: Sequence[float]
    ready: Sequence[float]
    late: Sequence[float]
    """Seconds."""


def series(run: Run, end: float, parts: int) -> Series:
    """Cut a simulation into equal parts, from its start to `end`, which may be after its own."""
    width = end / parts if end else 1.0
    edges = [width * part for part in range(parts + 1)]
    due = run.tasks.due
    places = [bisect_left(due, edge) for edge in edges[:-1]] + [len(due)]
    spans = list(pairwise(places))
    seen = [_seen(run.looks, start, start + width) for start in edges[:-1]]
    rate = run.plant.slots / (run.tasks.mean_handler_seconds or 1.0)
    return Series(
        load=[(last - first) / width for first, last in spans],
        capacity=[max(look.ready for look in looks) * rate for looks in seen],
        replicas=[max(look.replicas for look in looks) for looks in seen],
        ready=[max(look.ready for look in looks) for looks in seen],
        late=[_latest(run, first, last) for first, last in spans],
    )


def _seen(looks: Sequence[Look], start: float, end: float) -> Sequence[Look]:
    """Return the looks of a stretch, and the one before that still held when it began."""
    first = max(0, bisect_right(looks, start, key=_at) - 1)
    return looks[first : max(first + 1, bisect_left(looks, end, key=_at))]


def _at(look: Look) -> float:
    return look.at


def _latest(run: Run, first: int, last: int) -> float:
    return max(map(float.__sub__, run.plant.began[first:last], run.tasks.due[first:last]), default=0.0)
