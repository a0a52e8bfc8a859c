"""The horizons of one scrape: the defaults, or those of the query. Not here: counting (counts.lua)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract.metrics import LONGEST_HORIZON_SECONDS, MOST_HORIZONS, horizon_label
from delayq.contract.problems import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class DueHistogram:
    """Labels with their milliseconds, ascending."""

    ms: Mapping[str, int]
    asked: bool

    def samples(self, due_within: Mapping[int, int]) -> Iterable[tuple[str, int]]:
        """Yield label and tasks. Horizons of a query that add no task to the next smaller one are left out."""
        before = 0
        for label, ms in self.ms.items():
            if not self.asked or due_within[ms] != before:
                yield label, due_within[ms]
            before = due_within[ms]


def asked(words: Sequence[str]) -> DueHistogram:
    """Parse the horizons of a query, in any order; ValueError for an invalid one.

    A horizon is rounded to its label's six digits: 1234567 counts what falls due within 1.23457e+06 s.
    """
    if len(words) > MOST_HORIZONS:
        raise ValueError(f"horizon: expected at most {MOST_HORIZONS} of them, got {len(words)}")
    labels = {horizon_label(_seconds(word)) for word in words}
    return _of(labels, asked=True)


def _seconds(word: str) -> float:
    seconds = float(word) if _NUMBER.fullmatch(word) else 0.0
    if not 0 < seconds <= LONGEST_HORIZON_SECONDS:
        expected = f"seconds above 0 and not above {LONGEST_HORIZON_SECONDS}"
        raise ValueError(f"horizon: expected {expected}, got {quote(word)}")
    return seconds


def _of(labels: Iterable[str], *, asked: bool) -> DueHistogram:
    rising = sorted(labels, key=float)
    return DueHistogram({label: max(1, round(float(label) * 1000)) for label in rising}, asked)


ALWAYS: Final = _of(map(horizon_label, (10, 30, 60, 300, 900, 3600)), asked=False)
"""The horizons of a scrape without a query."""
