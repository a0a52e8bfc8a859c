"""How many workers there should be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq_operator.words import pods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue, Spec

REASONS: Final[Mapping[str, bool]] = {
    "External": True,
    "Fixed": False,
    "Held": False,
    "KeptWithinBounds": False,
}
"""Reasons of condition ScalingActive → whether the number of workers follows the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A number of workers, and why."""

    replicas: int
    reason: str
    """One of REASONS."""
    message: str


def scale(queue: DelayQueue, current: int | None) -> Scale:
    """Decide on the number of workers; `current` is how many the Deployment asks for, None when there is none yet."""
    spec = queue.spec
    if spec.stop_policy == "HoldAndDrain":
        return Scale(replicas=0, reason="Held", message="0 workers: spec.stopPolicy is HoldAndDrain")
    if spec.autoscaling is None:
        return _fixed(spec.worker.replicas)
    if spec.autoscaling.mode == "External":
        return _external(spec, current)
    kept = _clamped(
        spec, current or 1
    )  # none, after a hold, is nothing to keep to: nobody would scale from there
    message = f"{pods(kept, 'worker')}: this version keeps to minReplicas and maxReplicas, and does not follow work yet"
    return Scale(replicas=kept, reason="KeptWithinBounds", message=message)


def _fixed(replicas: int | None) -> Scale:
    wanted = 1 if replicas is None else replicas
    origin = "the default" if replicas is None else "spec.worker.replicas"
    message = f"{pods(wanted, 'worker')}: {origin}, without spec.autoscaling"
    return Scale(replicas=wanted, reason="Fixed", message=message)


def _external(spec: Spec, current: int | None) -> Scale:
    asked = spec.worker.replicas
    if asked is None:
        asked = _clamped(spec, current or 1)
    message = f"{pods(asked, 'worker')}, as written to spec.worker.replicas through the scale subresource"
    return Scale(replicas=asked, reason="External", message=message)


def _clamped(spec: Spec, replicas: int) -> int:
    assert spec.autoscaling is not None  # noqa: S101 -- for the type checker; both callers asked
    return max(spec.autoscaling.min_replicas, min(spec.autoscaling.max_replicas, replicas))
