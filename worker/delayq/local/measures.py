"""Read the metrics of a run's workers: lateness in the last minute."""

from __future__ import annotations

import re
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from delayq.contract import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW_SECONDS = 60.0
INTERPOLATED_SECONDS = 10.0  # buckets above this bound span 20 s and more
PARTS = (metrics.WORKER_DUE_TO_CLAIMED.name, metrics.WORKER_CLAIMED_TO_STARTED.name)
_BUCKET = re.compile(
    rf'^({"|".join(PARTS)})_bucket{{[^}}]*le="([^"]+)",queue="([^"]+)"}} (\S+)$', re.MULTILINE
)

Cumulative = dict[str, dict[float, float]]  # metric -> upper bound -> values up to it


def histograms(exposition: str, queue: str) -> Cumulative:
    """Return the two histograms of a queue in a worker's /metrics."""
    found: Cumulative = {part: {} for part in PARTS}
    for name, bound, served, count in _BUCKET.findall(exposition):
        if served != queue:
            continue
        found[name][float(bound)] = found[name].get(float(bound), 0.0) + float(count)
    return found


def quantile(q: float, cumulative: Mapping[float, float]) -> float | None:
    """Return the q-quantile in seconds; None without values.

    It is interpolated within buckets up to INTERPOLATED_SECONDS. In wider ones interpolation may be wrong by minutes:
    return the upper bound, which is infinite above the last bucket.
    """
    points = [(0.0, 0.0), *sorted(cumulative.items())]
    rank = q * points[-1][1]
    if rank <= 0:
        return None
    for (low, before), (high, upto) in pairwise(points):
        if upto >= rank:
            wide = high > INTERPOLATED_SECONDS
            return high if wide else low + (high - low) * (rank - before) / (upto - before)
    return None


class Window:
    """The workers' histograms of the last minute."""

    def __init__(self) -> None:
        """Start empty."""
        self._seen: dict[str, Cumulative] = {}  # process -> its last histograms
        self._changes: deque[tuple[float, Cumulative]] = deque()  # monotonic seconds, what was added then

    def add(self, process: str, now: float, counted: Cumulative) -> None:
        """Add a worker's histograms; a lower count than before means a restarted worker."""
        before = self._seen.get(process, {})
        self._seen[process] = counted
        if any(
            count < before.get(part, {}).get(le, 0.0)
            for part, hist in counted.items()
            for le, count in hist.items()
        ):
            before = {}
        change = {
            part: {le: count - before.get(part, {}).get(le, 0.0) for le, count in histogram.items()}
            for part, histogram in counted.items()
        }
        if any(any(histogram.values()) for histogram in change.values()):
            self._changes.append((now, change))

    def lateness_ms(self, now: float) -> tuple[float, float] | None:
        """Return p50 and p99 of due → started, approximated by the sum of the parts' quantiles, usually higher."""
        while self._changes and self._changes[0][0] < now - WINDOW_SECONDS:
            self._changes.popleft()
        p50, p99 = (sum(self._quantile(q, part) or 0.0 for part in PARTS) * 1000 for q in (0.5, 0.99))
        return (p50, p99) if self._changes else None

    def _quantile(self, q: float, part: str) -> float | None:
        total: dict[float, float] = {}
        for _, change in self._changes:
            for bound, count in change[part].items():
                total[bound] = total.get(bound, 0.0) + count
        return quantile(q, total)
