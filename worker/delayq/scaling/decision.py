"""What a decision is. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.scaling.memory import Memory
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample

Reason = Literal["FollowsWork", "MetricsUnavailable", "FallenBack"]
Limit = Literal[
    "None",
    "MaxReplicas",
    "MinReplicas",
    "MaxInFlight",
    "RatePerSecond",
    "ScaleUpPolicy",
    "ScaleDownPolicy",
    "Stabilization",
    "DueAgain",
    "Cooldown",
]

LIMITS: Final[Mapping[Limit, str]] = {
    "None": "",
    "MaxReplicas": "{wanted} were needed, more than maxReplicas",
    "MinReplicas": "{wanted} would do, fewer than minReplicas",
    "MaxInFlight": "{wanted} were needed, more than limits.maxInFlight lets work",
    "RatePerSecond": "{wanted} were needed, more than limits.ratePerSecond lets work",
    "ScaleUpPolicy": "{wanted} were needed, behavior.scaleUp allows no more now",
    "ScaleDownPolicy": "{wanted} would do, behavior.scaleDown allows no fewer now",
    "Stabilization": "{wanted} without the stabilization window of behavior",
    "DueAgain": "{wanted} would do, as many are needed again within cooldownSeconds",
    "Cooldown": "the last worker stays for cooldownSeconds",
}
"""What kept the number from the one that the work asked for → how people are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A rush that the most workers allowed could not master in time."""

    in_seconds: float
    """When it begins, from now."""
    late_seconds: float
    """How late tasks will begin at least."""
    needed: int
    """Workers that would be in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many workers to ask for, and all that led to it."""

    replicas: int
    reason: Reason
    limited_by: Limit
    wanted: int
    """What the work asked for, before bounds and behavior."""
    late_seconds: float
    """How late tasks are expected to begin that the number can still help."""
    unforeseen_rate: float
    """Tasks per second that are scheduled and fall due within one lead time."""
    wake_seconds: float | None
    """With no worker: when the first will be started, from now; None: nothing is known to come."""
    shortfall: Shortfall | None
    sample: Sample | None
    """None: nothing could be read."""
    policy: Policy
    previous: Memory
    memory: Memory
    """For the next decision."""
    at: float
    """Unix seconds."""

    @property
    def before(self) -> int:
        """Workers asked for until now."""
        return self.previous.replicas
