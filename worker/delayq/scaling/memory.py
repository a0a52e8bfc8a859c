"""What one decision hands to the next. Pure data; an operator that starts anew begins with begun()."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Recommendation(NamedTuple):
    """What an earlier decision would have had, before it was held back."""

    at: float
    """Unix seconds."""
    replicas: int


class Change(NamedTuple):
    """A number of workers that became another."""

    at: float
    """Unix seconds."""
    before: int
    after: int


class Foresight(NamedTuple):
    """What an earlier look saw coming."""

    at: float
    """Unix seconds."""
    fallen_due: int
    """The counter then."""
    coming: tuple[tuple[float, int], ...]
    """Seconds from then → tasks that fall due by then, within the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Everything that a decision takes from those before it."""

    replicas: int
    """Workers asked for."""
    active_at: float
    """When there last was something to do, Unix seconds."""
    recommendations: tuple[Recommendation, ...] = ()
    changes: tuple[Change, ...] = ()
    foresights: tuple[Foresight, ...] = ()
    failures: int = 0
    """Looks in a row that told nothing, or not all."""


def begun(replicas: int, now: float) -> Memory:
    """Return the memory of a new operator, which knows only the number of workers: it removes none in haste."""
    return Memory(
        replicas=replicas,
        active_at=now,
        recommendations=(Recommendation(now, replicas),),
    )
