"""The number of workers in each scaling mode. Pure. The decisions of mode Internal come from autoscaler.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.scaling import sentence
from delayq.scaling.sentences import counted

from delayq_operator.scaling.suspension import suspension

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq.scaling import Decision

    from delayq_operator.scaling.capacity_forecast import Rush
    from delayq_operator.scrape.backlog import SuspendCommand

NOT_DECIDED: Final = "NotEvaluated"
"""The reason before the first sample."""

_GUARD_DOWN: Final = "two or more workers run and none can use the guard; more would not help"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Observations of a queue's scaling for its status, besides the decision."""

    evaluated: bool = False
    """Whether this operator process has decided."""
    lead_seconds: float | None = None
    handler_seconds: float | None = None
    rush: Rush | None = None
    waking: bool = False
    """Whether the first workers are starting, within the usual time."""
    scaled_at: float | None = None
    """When the number last changed, Unix seconds; None: not since this operator process started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A number of workers, and why."""

    replicas: int
    reason: str
    """One of condition ScalingActive."""
    message: str
    decision: Decision | None = None
    """The decision behind it, if the operator made one."""


def scale(
    queue: DelayQueue,
    current: int | None,
    decision: Decision | None = None,
    *,
    left_alone: bool = False,
    guard_down: bool = False,
    command: SuspendCommand | None = None,
) -> Scale:
    """Return the number of workers; `current` is spec.replicas of the Deployment, None if there is none yet."""
    spec, fixed = queue.spec, queue.spec.worker.replicas
    suspended = suspension(spec, command)
    if suspended.drains:
        return _scale(0, "Suspended", f": {suspended.message}")
    if spec.autoscaling is None:
        return _scale(fixed, "AutoscalingDisabled", ": spec.worker.replicas, without spec.autoscaling")
    if spec.autoscaling.mode == "External":
        how = ", as written to spec.worker.replicas through the scale subresource"
        return _scale(fixed, "ExternalAutoscaler", how)
    # At first 1 worker: it shows the lead time.
    least, most = spec.autoscaling.min_replicas, spec.autoscaling.max_replicas
    nearest = max(least, min(most, 1 if current is None else current))
    holds = {
        "Suspended": suspended.message,
        "ReconciliationSuspended": "reconciliation is suspended" if left_alone else "",
        "GuardUnreachable": _GUARD_DOWN if guard_down else "",
    }
    for reason, why in holds.items():
        if why:
            return _scale(nearest if current is None else current, reason, f", kept: {why}")
    if decision is None:
        kept = "kept" if nearest == current else "the nearest that spec.autoscaling allows"
        return _scale(nearest, NOT_DECIDED, f", {kept}: the metrics were not read yet")
    message = sentence(decision)
    return Scale(replicas=decision.replicas, reason=decision.reason, message=message, decision=decision)


def _scale(replicas: int, reason: str, why: str) -> Scale:
    return Scale(replicas=replicas, reason=reason, message=f"{counted(replicas, 'worker')}{why}")
