"""An adaptive histogram of due times. Pure: the caller counts tasks in Redis.

The histogram repeatedly splits the bins with the most tasks, until a bin is short enough or has few enough tasks. So
it distinguishes a rush at 02:00 from the same number spread over the hour, and Redis counts a few hundred bins instead
of listing tasks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROUNDS: Final = 8
"""Maximum number of rounds. The model spreads the tasks of wide bins evenly."""

PARTS: Final = 16
CUT_AT_ONCE: Final = 7
"""Bins to split in a round, so that it counts at most 126 instants: half a millisecond of Redis a shard."""


class Bin(NamedTuple):
    """Tasks that fall due from the start to before the end."""

    start_ms: int
    end_ms: int
    tasks: int

    @property
    def width_ms(self) -> int:
        """Width of the bin."""
        return self.end_ms - self.start_ms

    @property
    def roundest_ms(self) -> int:
        """The roundest instant in the bin: a full hour, minute or second."""
        rounded = (-(-self.start_ms // step) * step for step in (3_600_000, 60_000, 1000))
        return next((at for at in rounded if at < self.end_ms), self.start_ms)


class Histogram:
    """Consecutive bins, refined in rounds."""

    def __init__(self, spans: Iterable[tuple[int, int]], *, few: int, short_ms: int) -> None:
        """Bins with at most `few` tasks or at most `short_ms` wide are not split."""
        self.bins = [Bin(start, end, 0) for start, end in spans]
        self._few, self._short_ms = few, max(1, short_ms)
        self._cut = {each: self._edges(each, 1) for each in self.bins}

    def next_instants(self) -> list[int]:
        """Return the inclusive instants up to which to count tasks next; empty if the histogram is fine enough."""
        return sorted({edge - 1 for edges in self._cut.values() for edge in edges})

    def add(self, due_by: Mapping[int, int]) -> None:
        """Add the counts for next_instants(), and choose the bins to split next."""
        found: list[Bin] = []
        for each in self.bins:
            found += _parts(self._cut[each], due_by) if each in self._cut else [each]
        self.bins = found
        coarse = [each for each in found if each.tasks > self._few and each.width_ms > self._short_ms]
        most = sorted(coarse, key=lambda each: -each.tasks)[:CUT_AT_ONCE]
        self._cut = {each: self._edges(each, PARTS) for each in most}

    def _edges(self, whole: Bin, parts: int) -> list[int]:
        """Split a bin evenly, with a short first part: tasks are often due on the full hour."""
        parts = min(parts, -(-whole.width_ms // self._short_ms))
        even = {whole.start_ms + whole.width_ms * number // parts for number in range(parts + 1)}
        return sorted(even | {min(whole.start_ms + self._short_ms, whole.end_ms)})


def _parts(edges: Sequence[int], due_by: Mapping[int, int]) -> Iterable[Bin]:
    """Return the bins between edges. Tasks can leave during the count, so a negative number means none."""
    for start, end in pairwise(edges):
        yield Bin(start, end, max(0, due_by[end - 1] - due_by[start - 1]))
