"""The document's scaling settings, as inputs of a decision. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import ceil, inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, Self

from delayq.contract import Autoscaling, Limits
from delayq.contract.autoscaling import Behavior, Fallback
from delayq.scaling.model import RESERVE

if TYPE_CHECKING:
    from delayq.contract import Spec

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
"""What limits the number of workers."""

LEAD_SECONDS: Final = 15.0
"""The assumed lead time before the first measured one: a Python image that is on the node, with some reserve."""

SOONEST_SHARE: Final = 1 / 3
"""The assumed shortest start before the first measured one, as a part of the lead time."""

RESTART_SECONDS: Final = 10.0
"""For this long after a whole sample, a missing or partial one is not a failure: leader election or a restart of the
only scanner takes that long."""

HANDLER_SECONDS: Final = 1.0
"""The assumed handler time before the first measured one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits and objectives."""

    slots: int
    """Tasks that one worker runs at a time: spec.worker.concurrency."""
    lateness_seconds: float = 1.0
    """The latest that a task should start after it fell due: spec.objective.latenessMilliseconds."""
    percentile: float = 99.0
    """The percentage of tasks for which the objective holds."""
    min_replicas: int = 0
    max_replicas: int = 10
    lead_seconds: float | None = None
    """The document's lead time; None: the measured one."""
    period_seconds: float = 2.0
    """Time between two decisions."""
    cooldown_seconds: float = 60.0
    behavior: Behavior = field(default_factory=Behavior)
    fallback: Fallback | None = None
    limits: Limits = field(default_factory=Limits)
    """The queue's limits: they may leave additional workers idle."""

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """Read a document; without spec.autoscaling, with its defaults, for simulations."""
        scaling = spec.autoscaling or Autoscaling()
        return cls(
            slots=spec.worker.concurrency,
            lateness_seconds=spec.objective.lateness_seconds,
            percentile=spec.objective.percent,
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            lead_seconds=scaling.lead_time_seconds,
            cooldown_seconds=scaling.cooldown_seconds,
            behavior=scaling.behavior,
            fallback=scaling.fallback,
            limits=spec.limits,
        )

    def lead(self, learnt: float | None) -> float:
        """Return the lead time to use."""
        if self.lead_seconds is not None:
            return self.lead_seconds
        return LEAD_SECONDS if learnt is None else learnt

    @property
    def failures_allowed(self) -> int:
        """Failed readings in a row before the fallback applies, at least one."""
        if self.fallback is None:
            return sys.maxsize
        return max(1, ceil((self.fallback.after_seconds - RESTART_SECONDS) / self.period_seconds))

    def most_starts(self, ready: int) -> int:
        """Return the most workers that may start at once, at least one."""
        return max(1, self.max_replicas - ready)

    def soonest(self, learnt: float | None, shortest: float | None) -> float:
        """Return the shortest start-up time to assume."""
        lead = self.lead(learnt)
        if self.lead_seconds is not None:
            return lead
        return min(lead, lead * SOONEST_SHARE if shortest is None else shortest)

    def window(self, learnt: float | None) -> float:
        """Return the window: the lead time and two periods, as workers of the next decision come a period later."""
        return self.lead(learnt) + 2 * self.period_seconds

    def useful(self, handler_seconds: float | None) -> tuple[float, Limit]:
        """Return the most workers that spec.limits allows to be busy, and which limit; inf without any.

        With rate r and burst b, at most b + r·h handlers of h seconds run at once, plus a tenth for longer ones.
        """
        limits, taken = self.limits, HANDLER_SECONDS if handler_seconds is None else handler_seconds
        rate, most = limits.rate_per_second, limits.max_in_flight
        found: list[tuple[float, Limit]] = [(inf, "None")]
        if most is not None:
            found.append((ceil(most / self.slots), "MaxInFlight"))
        if rate is not None:
            running = (limits.burst or rate) + rate * taken * RESERVE
            found.append((ceil(running / self.slots), "RatePerSecond"))
        return min(found, key=itemgetter(0))

    def clamped(self, replicas: int) -> int:
        """Limit a number to the bounds."""
        return max(self.min_replicas, min(self.max_replicas, replicas))
