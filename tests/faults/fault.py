"""What all faults have in common: they say what they need, and strike once. The faults themselves are beside this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.points import Point
    from tests.faults.stage import Stage

    Strike = Callable[[Stage], None]

Place = Literal["here", "apart", "own clock"]
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Fault:
    """One row."""

    name: str
    meaning: str
    """What the document says of it."""
    strike: Strike
    holds: Point
    """Where the worker that is hit waits with its first tasks until the fault is there."""
    place: Place = "here"
    """Where that worker runs: with the others, behind cables, or with a clock of its own."""
    moves_redis_clock: bool = False
