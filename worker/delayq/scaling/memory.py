"""The state that one decision passes to the next. Pure data; a new operator starts with begun()."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Recommendation(NamedTuple):
    """An earlier recommendation, before behavior limited it."""

    at: float
    """Unix seconds."""
    replicas: int


class Change(NamedTuple):
    """A change of the number of workers."""

    at: float
    """Unix seconds."""
    before: int
    after: int


class Foresight(NamedTuple):
    """The forecast of an earlier sample."""

    at: float
    """Unix seconds."""
    fallen_due: int
    """The counter at that time."""
    coming: tuple[tuple[float, int], ...]
    """Seconds from then → tasks that fall due by then, within the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The state from earlier decisions."""

    replicas: int
    """The previous number of workers."""
    active_at: float
    """When the queue was last active, Unix seconds."""
    recommendations: tuple[Recommendation, ...] = ()
    changes: tuple[Change, ...] = ()
    foresights: tuple[Foresight, ...] = ()
    failures: int = 0
    """Consecutive samples that were missing or incomplete."""


def begun(replicas: int, now: float) -> Memory:
    """Return the memory of a new operator; as if this number were recommended now, so that none is removed at once."""
    return Memory(
        replicas=replicas,
        active_at=now,
        recommendations=(Recommendation(now, replicas),),
    )
