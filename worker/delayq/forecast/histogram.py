"""How many tasks fall due when, as finely as it matters, with few questions. Pure: the caller asks them.

Spans are cut where most tasks fall due, again and again, until a stretch is so short that its tasks come at once, or
holds so few that it does not matter when. So a rush at 02:00 is told from the same number spread over the hour, and
Redis counts a few hundred stretches instead of being asked for tasks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROUNDS: Final = 8
"""Questions at most. What is still coarse then is taken to come evenly."""

PARTS: Final = 16
CUT_AT_ONCE: Final = 7
"""Stretches, so that one question has at most 126 times, which takes Redis half a millisecond a shard."""


class Bin(NamedTuple):
    """Tasks that fall due in a stretch of time, its end not included."""

    start_ms: int
    end_ms: int
    tasks: int

    @property
    def width_ms(self) -> int:
        """How long it is."""
        return self.end_ms - self.start_ms

    @property
    def roundest_ms(self) -> int:
        """The roundest instant in it: a full hour, minute or second."""
        rounded = (-(-self.start_ms // step) * step for step in (3_600_000, 60_000, 1000))
        return next((at for at in rounded if at < self.end_ms), self.start_ms)


class Histogram:
    """Stretches one after the other."""

    def __init__(self, spans: Iterable[tuple[int, int]], *, few: int, short_ms: int) -> None:
        """Tasks as few, and a stretch as short, need not be looked at more closely."""
        self.bins = [Bin(start, end, 0) for start, end in spans]
        self._few, self._short_ms = few, max(1, short_ms)
        self._cut = {each: self._edges(each, 1) for each in self.bins}

    def asks(self) -> list[int]:
        """Return the next question: until when to count, that millisecond included. Empty when enough is known."""
        return sorted({edge - 1 for edges in self._cut.values() for edge in edges})

    def told(self, due_by: Mapping[int, int]) -> None:
        """Take the answer, and think of the next question."""
        found: list[Bin] = []
        for each in self.bins:
            found += _parts(self._cut[each], due_by) if each in self._cut else [each]
        self.bins = found
        coarse = [each for each in found if each.tasks > self._few and each.width_ms > self._short_ms]
        most = sorted(coarse, key=lambda each: -each.tasks)[:CUT_AT_ONCE]
        self._cut = {each: self._edges(each, PARTS) for each in most}

    def _edges(self, stretch: Bin, parts: int) -> list[int]:
        """Cut evenly, and the very beginning off: tasks are often due on the full hour."""
        parts = min(parts, -(-stretch.width_ms // self._short_ms))
        even = {stretch.start_ms + stretch.width_ms * number // parts for number in range(parts + 1)}
        return sorted(even | {min(stretch.start_ms + self._short_ms, stretch.end_ms)})


def _parts(edges: Sequence[int], due_by: Mapping[int, int]) -> Iterable[Bin]:
    """Return what falls due between edges. Tasks leave while we count: a number below zero is none."""
    for start, end in pairwise(edges):
        yield Bin(start, end, max(0, due_by[end - 1] - due_by[start - 1]))
