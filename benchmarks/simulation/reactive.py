"""What a queue's length alone can do: KEDA and the HPA with their defaults, for comparison. Pure.

Sources: the defaults that KEDA documents for a ScaledObject (pollingInterval 30 s, cooldownPeriod 300 s, activation
above 0) and those of autoscaling/v2 (a look every 15 s, 10 % tolerance, up by the larger of 4 pods and 100 % per 15 s,
down by 100 % per 15 s after a window of 300 s). From zero, KEDA asks for one worker (or minReplicas); from then on,
the HPA wants ceil(demand / target). Demand is what is due and what is in flight, the target a worker's slots: a kind
reading, for most scalers count either less, or what is not due as well.

The first poll comes half an interval after the start: a rush at a full minute meets neither the best nor the worst.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

from delayq.contract.autoscaling import Behavior, ScaleDown, ScaleUp, ScalingPolicy
from delayq.scaling import begun
from delayq.scaling.behavior import changed, fewest, most, recommended, stabilized

from benchmarks.simulation.pilot import Step

if TYPE_CHECKING:
    from delayq.scaling import Policy

    from benchmarks.simulation.outlook import Outlook
    from benchmarks.simulation.plant import Plant

HPA_SECONDS: Final = 15
POLL_EVERY: Final = 2
"""30 s, in looks of the HPA."""

COOLDOWN_SECONDS: Final = 300.0
TOLERANCE: Final = 0.1
_WHOLE: Final = ScalingPolicy(type="Percent", value=100, period_seconds=HPA_SECONDS)
BEHAVIOR: Final = Behavior(
    scale_up=ScaleUp(
        stabilization_window_seconds=0,
        policies=(_WHOLE, ScalingPolicy(type="Pods", value=4, period_seconds=HPA_SECONDS)),
    ),
    scale_down=ScaleDown(stabilization_window_seconds=300, policies=(_WHOLE,)),
)


class Reactive:
    """Polls, and follows what it finds."""

    name = "reactive"
    period_seconds: float = HPA_SECONDS
    patience_seconds = COOLDOWN_SECONDS + BEHAVIOR.scale_down.stabilization_window_seconds

    def __init__(self, policy: Policy, *, replicas: int) -> None:
        """Of the policy, the bounds and the slots count; the times are those of KEDA and the HPA."""
        self.policy = policy
        self._memory = begun(replicas, 0.0)
        self._looks = 0

    def look(self, plant: Plant, outlook: Outlook) -> Step:
        """Let the HPA look, and every other time KEDA poll."""
        now = plant.now
        demand = outlook.fallen_due(now) - plant.claimed + plant.in_flight
        before = self._memory.replicas
        replicas = self._hpa(demand, now) if before else before
        if self._looks % POLL_EVERY:
            replicas = self._keda(demand, replicas, now)
        self._looks += 1
        self._memory = replace(
            self._memory, replicas=replicas, changes=changed(replicas, self._memory, BEHAVIOR, now)
        )
        return Step(replicas)

    def _keda(self, demand: int, replicas: int, now: float) -> int:
        if demand:
            self._memory = replace(self._memory, active_at=now)
            return replicas or max(1, self.policy.min_replicas)
        idle = now - self._memory.active_at >= COOLDOWN_SECONDS
        return self.policy.min_replicas if idle else replicas

    def _hpa(self, demand: int, now: float) -> int:
        before = self._memory.replicas
        target = self.policy.slots
        near = abs(demand / (before * target) - 1) <= TOLERANCE
        wanted = before if near else ceil(demand / target)
        least = max(1, self.policy.min_replicas)
        bounded = max(least, min(self.policy.max_replicas, wanted))
        steady = stabilized(bounded, self._memory, BEHAVIOR, now)
        paced = max(
            fewest(self._memory, BEHAVIOR.scale_down, now),
            min(most(self._memory, BEHAVIOR.scale_up, now), steady),
        )
        recommendations = recommended(bounded, self._memory, BEHAVIOR, now)
        self._memory = replace(self._memory, recommendations=recommendations)
        return max(least, min(self.policy.max_replicas, int(paced)))
