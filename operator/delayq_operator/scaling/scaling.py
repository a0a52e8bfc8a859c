"""The number of workers in each scaling mode. Pure. The decisions of mode Internal come from autoscaler.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.scaling import sentence
from delayq.scaling.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue, Spec
    from delayq.scaling import Decision

    from delayq_operator.scaling.capacity_forecast import Rush

REASONS: Final[Mapping[str, bool]] = {
    "ValidMetricsFound": True,
    "ExternalAutoscaler": True,
    "MetricsUnavailable": False,
    "AutoscalingDisabled": False,
    "ClaimsSuspended": False,
    "Paused": False,
    "GuardUnreachable": False,
}
"""Reasons of condition ScalingActive → whether the number of workers follows demand."""

NOT_DECIDED: Final = "NotEvaluated"
"""The reason before the first sample."""

HELD: Final[Mapping[str, str]] = {
    "Hold": "spec.stopPolicy is Hold",
    "HoldAndDrain": "spec.stopPolicy is HoldAndDrain",
}


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
    """One of REASONS, or NOT_DECIDED."""
    message: str
    decision: Decision | None = None
    """The decision behind it, if the operator made one."""


def scale(
    queue: DelayQueue,
    current: int | None,
    decision: Decision | None = None,
    *,
    paused: bool = False,
    guard_down: bool = False,
) -> Scale:
    """Return the number of workers; `current` is spec.replicas of the Deployment, None if there is none yet."""
    spec = queue.spec
    if spec.stop_policy == "HoldAndDrain":
        return Scale(replicas=0, reason="ClaimsSuspended", message=f"0 workers: {HELD['HoldAndDrain']}")
    if spec.autoscaling is None:
        return _fixed(spec.worker.replicas)
    if spec.autoscaling.mode == "External":
        return _external(spec.worker.replicas)
    for holds, reason, why in (
        (spec.stop_policy in HELD, "ClaimsSuspended", HELD.get(spec.stop_policy)),
        (paused, "Paused", "the DelayQueue is paused"),
        (
            guard_down,
            "GuardUnreachable",
            "two or more workers run and none can use the guard; more would not help",
        ),
    ):
        if holds:
            kept = _clamped(spec, 1) if current is None else current
            return Scale(replicas=kept, reason=reason, message=f"{counted(kept, 'worker')}, kept: {why}")
    if decision is None:
        return _undecided(spec, current)
    return Scale(
        replicas=decision.replicas,
        reason="ValidMetricsFound" if decision.reason == "ValidMetricsFound" else "MetricsUnavailable",
        message=sentence(decision),
        decision=decision,
    )


def _undecided(spec: Spec, current: int | None) -> Scale:
    """Keep the number within its bounds, at first 1: that worker shows the lead time."""
    wanted = _clamped(spec, 1 if current is None else current)
    kept = "kept" if wanted == current else "the nearest that spec.autoscaling allows"
    message = f"{counted(wanted, 'worker')}, {kept}: the metrics were not read yet"
    return Scale(replicas=wanted, reason=NOT_DECIDED, message=message)


def _fixed(replicas: int) -> Scale:
    message = f"{counted(replicas, 'worker')}: spec.worker.replicas, without spec.autoscaling"
    return Scale(replicas=replicas, reason="AutoscalingDisabled", message=message)


def _external(asked: int) -> Scale:
    message = f"{counted(asked, 'worker')}, as written to spec.worker.replicas through the scale subresource"
    return Scale(replicas=asked, reason="ExternalAutoscaler", message=message)


def _clamped(spec: Spec, replicas: int) -> int:
    assert spec.autoscaling is not None  # noqa: S101 -- for the type checker; both callers asked
    return max(spec.autoscaling.min_replicas, min(spec.autoscaling.max_replicas, replicas))
