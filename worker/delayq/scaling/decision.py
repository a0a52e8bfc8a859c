"""A decision. Pure data."""

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

Reason = Literal["ValidMetricFound", "MetricsUnavailable", "FallbackActive"]
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
"""What limits the number → the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A rush that maxReplicas workers cannot start in time."""

    in_seconds: float
    """Start of the rush, from now."""
    late_seconds: float
    """Lower bound of the greatest lateness."""
    needed: int
    """Workers that would start the tasks in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The number of workers, and all inputs of the decision."""

    replicas: int
    reason: Reason
    limited_by: Limit = "None"
    wanted: int
    """The number before bounds and behavior."""
    unforeseen_rate: float = 0.0
    """Tasks per second that are scheduled and fall due within one lead time."""
    lead_seconds: float
    """The assumed lead time."""
    wake_seconds: float | None = None
    """Without workers: the latest start of the first one, from now; None: no task is scheduled."""
    shortfall: Shortfall | None = None
    sample: Sample | None = None
    """None: the metrics were unavailable."""
    policy: Policy
    previous: Memory
    memory: Memory
    """For the next decision."""
    at: float
    """Unix seconds."""

    @property
    def absent(self) -> int:
        """Workers requested earlier that are neither ready nor starting."""
        if self.sample is None:
            return 0
        return max(0, min(self.replicas, self.before) - self.sample.ready - self.sample.starting)

    @property
    def late_seconds(self) -> float | None:
        """The greatest lateness, due tasks included, if workers start as they did; None if it is unknown.

        It is if a shard is missing, with limits.ratePerSecond, and if kinds of task differ in their handler times.
        """
        sample, policy = self.sample, self.policy
        if sample is None or not sample.whole or sample.kinds or policy.limits.rate_per_second is not None:
            return None
        due = load(sample, self.unforeseen_rate, policy.window(self.lead_seconds))
        most = policy.limits.max_in_flight or inf
        lead = policy.lead(sample.likely_lead(max(1, self.replicas - sample.ready)))
        ramp = fleet(sample, policy, min(lead, self.lead_seconds)).ramp(self.replicas - self.absent)
        return latest(due, [(at, int(min(slots, most))) for at, slots in ramp])

    @property
    def before(self) -> int:
        """The previous number of workers."""
        return self.previous.replicas
