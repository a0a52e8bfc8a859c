"""Tasks that no forecast contains, because they are scheduled and fall due within one lead time. Pure.

Their number is the number of tasks that fell due since an earlier sample, minus those that the sample had forecast.
The next lead time is expected to bring as many; as arrivals are random, an upper percentile counts.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from delayq.scaling.memory import Foresight

if TYPE_CHECKING:
    from delayq.scaling.memory import Memory
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample

MOST_KEPT: Final = 8


def unforeseen(sample: Sample, memory: Memory, lead_seconds: float, now: float) -> float:
    """Return the expected number of such tasks per second."""
    if sample.fallen_due is None or not memory.foresights:
        return 0.0
    # The oldest sample within one lead time: a younger one covers less; an older one need not forecast the last tasks.
    recent = (each for each in memory.foresights if now - each.at <= lead_seconds)
    then = next(recent, memory.foresights[-1])
    passed = now - then.at
    fell_due = sample.fallen_due - then.fallen_due
    if passed <= 0 or fell_due < 0:
        return 0.0
    # Divided by two seconds only, a burst of twenty would count as ten a second for the rest of the lead time.
    return max(0.0, fell_due - _coming(then, passed)) / max(passed, lead_seconds / 2)


def expected(rate: float, seconds: float, percentile: float) -> float:
    """Return the tasks per second to prepare for: the percentile of a Poisson process with this mean."""
    mean = rate * seconds
    if mean <= 0:
        return 0.0
    return (mean + NormalDist().inv_cdf(percentile / 100) * sqrt(mean)) / seconds


def remembered(sample: Sample, memory: Memory, now: float, policy: Policy) -> tuple[Foresight, ...]:
    """Return the forecasts to keep: this one, and about eight of the longest lead time.

    Each covers the window, which is two periods longer than a lead time: if a lead time is shorter than a period, the
    next sample comes after it.
    """
    if sample.fallen_due is None or not sample.whole:
        return memory.foresights
    longest = sample.lead(policy.most_starts(sample.ready))
    lead_seconds, window_seconds = max(policy.lead(longest), policy.period_seconds), policy.window(longest)
    kept = memory.foresights
    if kept and (sample.fallen_due < kept[-1].fallen_due or now < kept[-1].at):
        kept = ()  # another Redis, or another clock
    while len(kept) > 1 and kept[1].at <= now - lead_seconds:
        kept = kept[1:]
    if kept and now - kept[-1].at < lead_seconds / MOST_KEPT:
        return kept
    last = next((at for at, _ in sample.due_within if at >= window_seconds), window_seconds)
    coming = tuple(point for point in sample.due_within if point[0] <= last)
    return (*kept, Foresight(now, sample.fallen_due, coming))


def _coming(then: Foresight, seconds: float) -> float:
    """Return the tasks that a sample had forecast within a time, interpolated between its horizons."""
    before, seen = 0.0, 0.0
    for horizon, tasks in then.coming:
        if horizon >= seconds:
            return seen + (tasks - seen) * (seconds - before) / (horizon - before)
        before, seen = horizon, tasks
    return seen
