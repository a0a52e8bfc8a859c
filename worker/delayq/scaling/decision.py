"""What a decision is. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from delayq.scaling.lateness import latest
from delayq.scaling.load import fleet, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.scaling.memory import Memory
    from delayq.scaling.policy import Limit, Policy
    from delayq.scaling.sample import Sample

Reason = Literal["ValidMetricsFound", "MetricsUnavailable", "FallenBack"]
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
    unforeseen_rate: float
    """Tasks per second that are scheduled and fall due within one lead time."""
    lead_seconds: float
    """Start-up time that was counted with."""
    wake_seconds: float | None
    """With no worker: when the first will be started at the latest, from now; None: nothing is known to come."""
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
    def absent(self) -> int:
        """Workers asked for earlier that are neither ready nor on their way."""
        if self.sample is None:
            return 0
        return max(0, min(self.replicas, self.before) - self.sample.ready - self.sample.starting)

    @property
    def late_seconds(self) -> float | None:
        """How late tasks begin at the most, the overdue ones included; None where the inputs do not tell.

        They do not where a shard is missing, or where a rate decides when tasks begin.
        """
        sample, policy = self.sample, self.policy
        if sample is None or not sample.whole or policy.limits.rate_per_second is not None:
            return None
        due = load(sample, self.unforeseen_rate, policy.window(self.lead_seconds))
        most = policy.limits.max_in_flight or inf
        ramp = fleet(sample, policy, self.lead_seconds).ramp(self.replicas - self.absent)
        return latest(due, [(at, int(min(slots, most))) for at, slots in ramp])

    @property
    def before(self) -> int:
        """Workers asked for until now."""
        return self.previous.replicas
