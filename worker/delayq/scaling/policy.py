"""What the document says about the number of workers, in the terms of a decision. Pure."""

from __future__ import annotations

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
"""What keeps the number of workers from what was asked for."""

LEAD_SECONDS: Final = 15.0
"""A worker's start-up until one was seen: a Python image that is on the node already, with some reserve."""

SOONEST_SHARE: Final = 1 / 3
"""Of the lead time: the shortest start to reckon with until one was seen."""

HANDLER_SECONDS: Final = 1.0
"""A handler's time until one was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Bounds and aims."""

    slots: int
    """Tasks that one worker runs at a time: spec.worker.concurrency."""
    lateness_seconds: float = 1.0
    """The latest that a task should start after it fell due: spec.objective.latenessMilliseconds."""
    percentile: float = 99.0
    """For how many of a hundred tasks that should hold."""
    min_replicas: int = 0
    max_replicas: int = 10
    lead_seconds: float | None = None
    """A worker's start-up as the document says; None: as it was learnt."""
    period_seconds: float = 2.0
    cooldown_seconds: float = 60.0
    behavior: Behavior = field(default_factory=Behavior)
    fallback: Fallback | None = None
    limits: Limits = field(default_factory=Limits)
    """What the queue lets begin: workers beyond that would idle."""

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """Read a document; without spec.autoscaling, its defaults count, as a simulation would try them."""
        scaling = spec.autoscaling or Autoscaling()
        return cls(
            slots=spec.worker.concurrency,
            lateness_seconds=spec.objective.lateness_seconds,
            percentile=spec.objective.percent,
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            lead_seconds=scaling.lead_time_seconds,
            period_seconds=scaling.period_seconds,
            cooldown_seconds=scaling.cooldown_seconds,
            behavior=scaling.behavior,
            fallback=scaling.fallback,
            limits=spec.limits,
        )

    def lead(self, learnt: float | None) -> float:
        """Return the start-up time to count with."""
        if self.lead_seconds is not None:
            return self.lead_seconds
        return LEAD_SECONDS if learnt is None else learnt

    def most_starts(self, ready: int) -> int:
        """Return how many workers may have to start at once, at least one."""
        return max(1, self.max_replicas - ready)

    def soonest(self, learnt: float | None, shortest: float | None) -> float:
        """Return the start-up time of the quickest worker: help that arrives then may still be of use."""
        lead = self.lead(learnt)
        if self.lead_seconds is not None:
            return lead
        return min(lead, lead * SOONEST_SHARE if shortest is None else shortest)

    def window(self, learnt: float | None) -> float:
        """How far this decision has to see: what the next one asks for comes a period later, if nothing is delayed."""
        return self.lead(learnt) + 2 * self.period_seconds

    def useful(self, handler_seconds: float | None) -> tuple[float, Limit]:
        """Return the most workers that spec.limits gives something to do, and by which limit; inf without any.

        Of a rate r with a burst b, b + r·h handlers of h seconds run at the most, and a tenth more for those that take
        longer.
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
        """Keep a number within the bounds."""
        return max(self.min_replicas, min(self.max_replicas, replicas))
