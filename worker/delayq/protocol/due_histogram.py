"""What one scrape counts of the tasks that fall due: the defaults, or what the query asks for. Not here: counting."""

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
    kinds_ms: int = 0
    """The kinds of tasks that fall due within so long are wanted, too; 0: they are not."""

    def samples(self, due_within: Mapping[int, int]) -> Iterable[tuple[str, int]]:
        """Yield label and tasks. Horizons of a query that add no task to the next smaller one are left out."""
        before = 0
        for label, ms in self.ms.items():
            if not self.asked or due_within[ms] != before:
                yield label, due_within[ms]
            before = due_within[ms]


def asked(words: Sequence[str], kinds_within: Sequence[str] = ()) -> DueHistogram:
    """Parse the horizons of a query, in any order, and a time for kinds; ValueError for an invalid one.

    A horizon is rounded to its label's six digits: 1234567 counts what falls due within 1.23457e+06 s. Without
    horizons, they are those of ALWAYS.
    """
    if not words:
        return ALWAYS
    if len(words) > MOST_HORIZONS:
        raise ValueError(f"horizon: expected at most {MOST_HORIZONS} of them, got {len(words)}")
    kinds_seconds = max((_seconds("kinds_within", word) for word in kinds_within), default=0.0)
    horizons = _ms(_seconds("horizon", word) for word in words)
    return DueHistogram(horizons, asked=True, kinds_ms=round(kinds_seconds * 1000))


def _seconds(name: str, word: str) -> float:
    seconds = float(word) if _NUMBER.fullmatch(word) else 0.0
    if not 0 < seconds <= LONGEST_HORIZON_SECONDS:
        expected = f"seconds above 0 and not above {LONGEST_HORIZON_SECONDS}"
        raise ValueError(f"{name}: expected {expected}, got {quote(word)}")
    return seconds


def _ms(horizons: Iterable[float]) -> Mapping[str, int]:
    rising = sorted(set(map(horizon_label, horizons)), key=float)
    return {label: max(1, round(float(label) * 1000)) for label in rising}


ALWAYS: Final = DueHistogram(_ms((10, 30, 60, 300, 900, 3600)), asked=False)
"""The horizons of a scrape without a query."""
