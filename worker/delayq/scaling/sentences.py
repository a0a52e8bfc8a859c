"""A decision as a message with its inputs: the same in events, status, logs and simulations. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING

from delayq.scaling.decision import LIMITS
from delayq.scaling.policy import HANDLER_SECONDS

if TYPE_CHECKING:
    from delayq.scaling.decision import Decision
    from delayq.scaling.sample import Sample


def sentence(decision: Decision) -> str:
    """Return the number of workers and the reason, such as "4 → 9 workers: 2,000 tasks fall due within 15 s; …"."""
    return f"{headline(decision)}: {because(decision)}"


def headline(decision: Decision) -> str:
    """Return the number of workers."""
    if decision.replicas == decision.before:
        return counted(decision.replicas, "worker")
    return f"{decision.before:,} → {counted(decision.replicas, 'worker')}"


def because(decision: Decision) -> str:
    """Return the reason."""
    if decision.sample is None:
        return _blind(decision)
    parts = [_demand(decision, decision.sample)]
    if decision.replicas:
        parts.append(_supply(decision, decision.sample))
    elif decision.wake_seconds is not None:
        parts.append(f"workers start by {clock(decision.at + decision.wake_seconds)}")
    if decision.limited_by != "None":
        parts.append(LIMITS[decision.limited_by].format(wanted=f"{decision.wanted:,}"))
    if not decision.sample.whole:
        parts.append("not every shard has reported")
    if decision.reason == "FallbackActive":
        parts.append("fallback.replicas applies")
    return "; ".join(parts)


def _demand(decision: Decision, sample: Sample) -> str:
    window = decision.policy.window(decision.lead_seconds)
    soon = sample.within(window)
    found = [f"{counted(sample.overdue, 'task')} due"] if sample.overdue else []
    found += [f"{sample.in_flight:,} in flight"] if sample.in_flight else []
    found += [f"{sample.parked:,} parked"] if sample.parked else []
    found += [f"{soon:,} due within {seconds(window)}"] if soon else []
    if decision.unforeseen_rate:
        found.append(f"{decision.unforeseen_rate:,.3g} a second arriving at short notice")
    return ", ".join(found) if found else f"nothing is due, in flight or due within {seconds(window)}"


def _supply(decision: Decision, sample: Sample) -> str:
    taken = HANDLER_SECONDS if sample.mean_seconds is None else sample.mean_seconds
    remark = " (weighted by kind)" if sample.kinds else " (not learnt yet)" * (sample.mean_seconds is None)
    slots = (
        f"{decision.replicas:,} × {counted(decision.policy.slots, 'slot')} of {seconds(taken)} a task{remark}"
    )
    absent = f"; {counted(decision.absent, 'worker')} neither ready nor starting" if decision.absent else ""
    return f"{slots}{_claim(decision)}{absent}"


def _claim(decision: Decision) -> str:
    """Return when tasks start, if the inputs determine it."""
    late = decision.late_seconds
    if decision.policy.limits.rate_per_second is not None:
        return ", as fast as limits.ratePerSecond allows"
    if late is None:
        return ""
    if late == inf:
        return " begin none of them until more workers are ready"
    if not late:
        return " start them on time"
    allowed = seconds(decision.policy.lateness_seconds)
    return f" start them up to {seconds(late)} late (objective {allowed})"


def _blind(decision: Decision) -> str:
    failures = decision.memory.failures
    times = "" if failures <= 1 else f", {failures:,} times in a row"
    if decision.reason == "FallbackActive":
        return f"metrics cannot be read{times}: fallback.replicas applies"
    return f"metrics cannot be read{times}: the number is kept"


def counted(number: int, what: str) -> str:
    """Return "1 task", "2,000 tasks"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seconds(value: float) -> str:
    """Return a duration with a suitable unit: 0.53 s, 12 s, 11 min, 3 h."""
    for least, unit, word in ((7200, 3600, "h"), (180, 60, "min")):
        if value >= least:
            return f"{value / unit:.3g} {word}"
    return f"{value:.3g} s" if value >= 0.01 or not value else f"{value * 1000:.3g} ms"  # noqa: PLR2004


def clock(unix_seconds: float) -> str:
    """Return a date and time in UTC."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
