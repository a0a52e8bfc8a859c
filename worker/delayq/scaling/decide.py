"""Decides the number of workers. Pure: the operator and `delayq replay` call the same function.

Demand is the present tasks (due, in flight), the tasks that fall due in the window, and an estimate of tasks that are
scheduled at short notice. model.py finds the fewest workers that start all of it in time; bounds, cool-down and
behavior then limit the number. Missing data never lowers it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from delayq.scaling import arrivals, behavior
from delayq.scaling.decision import Decision
from delayq.scaling.load import load, needed
from delayq.scaling.shortfall import shortfall

if TYPE_CHECKING:
    from delayq.scaling.memory import Memory
    from delayq.scaling.policy import Limit, Policy
    from delayq.scaling.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """The workers that the tasks need."""

    replicas: int
    again: int
    """The same for the tasks due within the cool-down."""
    rate: float
    lead: float
    """The assumed lead time, seconds."""
    active: bool


def decide(sample: Sample | None, policy: Policy, previous: Memory, now: float) -> Decision:
    """Decide; `now` in Unix seconds, `sample` None when the metrics are unavailable."""
    if sample is None:
        return _unseeing(policy, previous, now)
    asked = _demand(sample, policy, previous, now)
    demand, held_by = _useful(asked, sample, policy)
    active_at = now if demand.active else min(previous.active_at, now)
    wanted, kept_by = _kept(demand, policy, replace(previous, active_at=active_at), now)
    if not sample.whole:
        wanted = max(wanted, previous.replicas)
    replicas, limit = _allowed(wanted, policy, previous, now)
    failures = 0 if sample.whole else previous.failures + 1
    replicas, fallen = _fallen_back(replicas, policy, failures)
    memory = replace(
        _remembered(previous, policy, now, replicas=replicas, wanted=max(wanted, demand.replicas)),
        active_at=active_at,
        foresights=arrivals.remembered(sample, previous, now, policy),
        failures=failures,
    )
    return Decision(
        replicas=replicas,
        reason="ValidMetricFound" if sample.whole else fallen,
        limited_by=next((each for each in (limit, kept_by, held_by) if each != "None"), "None"),
        wanted=asked.replicas,
        unforeseen_rate=demand.rate,
        lead_seconds=demand.lead,
        wake_seconds=_wake(sample, policy, replicas),
        shortfall=shortfall(sample, policy, demand.rate),
        sample=sample,
        policy=policy,
        previous=previous,
        memory=memory,
        at=now,
    )


def _demand(sample: Sample, policy: Policy, previous: Memory, now: float) -> _Demand:
    replicas, start, rate = _needed(sample, policy, previous, now)
    if sample.parked:
        replicas = max(1, replicas)
    again = replicas
    if replicas < previous.replicas and policy.cooldown_seconds > policy.window(start):
        farther = load(sample, rate, policy.cooldown_seconds)
        again = max(replicas, needed(farther, sample, policy, start))
    soon = sample.within(policy.window(sample.lead_seconds))
    active = bool(sample.overdue or sample.in_flight or soon) or _stirred(sample, previous)
    return _Demand(replicas=replicas, again=again, rate=rate, lead=start, active=active)


def _needed(sample: Sample, policy: Policy, previous: Memory, now: float) -> tuple[int, float, float]:
    """Return the needed workers, the lead time of as many starts (seconds), and the expected short-notice rate.

    More simultaneous starts take longer and need a longer window. The search begins with as many as allowed, and takes
    fewer until the tasks of their window need that many. The rate is estimated over the lead time, because a margin
    for chance that is right for 2 s is too large for 15. So a shorter window may need more workers than it was taken
    for: then the longer one before it counts, with more starts than the shorter one had. Otherwise more work could ask
    for fewer workers.
    """
    starts, before = policy.most_starts(sample.ready), None
    while True:
        lead = policy.lead(sample.lead(starts))
        span = max(lead, policy.period_seconds)  # without a lead time, until the next sample
        rate = arrivals.expected(arrivals.unforeseen(sample, previous, span, now), span, policy.percentile)
        replicas = needed(load(sample, rate, policy.window(lead)), sample, policy, lead)
        fewer = max(1, policy.clamped(replicas) - sample.ready)
        if fewer > starts and before is not None:
            return max(before[0], sample.ready + starts + 1), *before[1:]
        if fewer >= starts or policy.lead(sample.lead(fewer)) == lead:
            return replicas, lead, rate
        starts, before = fewer, (replicas, lead, rate)


def _useful(demand: _Demand, sample: Sample, policy: Policy) -> tuple[_Demand, Limit]:
    """Limit demand to the workers that spec.limits allows to be busy."""
    most, limit = policy.useful(sample.mean_seconds)
    if demand.replicas <= most:
        return demand, "None"
    return replace(demand, replicas=int(most), again=int(min(demand.again, most))), limit


def _stirred(sample: Sample, previous: Memory) -> bool:
    """Whether tasks fell due since the last sample; short ones may start and end between two samples."""
    if sample.fallen_due is None or not previous.foresights:
        return False
    return sample.fallen_due > previous.foresights[-1].fallen_due


def _kept(demand: _Demand, policy: Policy, previous: Memory, now: float) -> tuple[int, Limit]:
    """Keep workers that are needed again soon, and the last one during the cool-down."""
    if demand.replicas >= previous.replicas:
        return demand.replicas, "None"
    if demand.again > demand.replicas:
        return min(previous.replicas, demand.again), "DueAgain"
    if not demand.replicas and now - previous.active_at < policy.cooldown_seconds:
        return 1, "Cooldown"
    return demand.replicas, "None"


def _allowed(wanted: int, policy: Policy, previous: Memory, now: float) -> tuple[int, Limit]:
    """Apply bounds and behavior; returns the number, and which of them limits it."""
    bounded = policy.clamped(wanted)
    steady = behavior.stabilized(bounded, previous, policy.behavior, now)
    if not bounded and steady <= 1:
        steady = 0  # _kept() has seen to the cool-down
    highest = behavior.most(previous, policy.behavior.scale_up, now)
    lowest = behavior.fewest(previous, policy.behavior.scale_down, now)
    paced = int(max(lowest, min(highest, steady)))
    replicas = policy.clamped(paced)
    limits: tuple[tuple[int, Limit, Limit], ...] = (
        (replicas - paced, "MinReplicas", "MaxReplicas"),
        (paced - steady, "ScaleDownPolicy", "ScaleUpPolicy"),
        (steady - bounded, "Stabilization", "Stabilization"),
        (bounded - wanted, "MinReplicas", "MaxReplicas"),
    )
    held = next(((moved, more, fewer) for moved, more, fewer in limits if moved), None)
    return replicas, "None" if held is None else held[1] if held[0] > 0 else held[2]


def _unseeing(policy: Policy, previous: Memory, now: float) -> Decision:
    """Hold, and fall back after too many failed readings; never to fewer workers than there are."""
    failures = previous.failures + 1
    replicas, reason = _fallen_back(policy.clamped(previous.replicas), policy, failures)
    memory = replace(
        _remembered(previous, policy, now, replicas=replicas, wanted=replicas),
        active_at=now,  # without metrics the queue may be active: the cool-down starts anew
        foresights=(),
        failures=failures,
    )
    return Decision(
        replicas=replicas,
        reason=reason,
        wanted=replicas,
        lead_seconds=policy.lead(None),
        policy=policy,
        previous=previous,
        memory=memory,
        at=now,
    )


def _fallen_back(
    replicas: int, policy: Policy, failures: int
) -> tuple[int, Literal["MetricsUnavailable", "FallbackActive"]]:
    """Return at least the fallback's number after too many failures."""
    if policy.fallback is None or failures < policy.failures_allowed:
        return replicas, "MetricsUnavailable"
    return max(replicas, policy.clamped(policy.fallback.replicas)), "FallbackActive"


def _remembered(previous: Memory, policy: Policy, now: float, *, replicas: int, wanted: int) -> Memory:
    """Return what behavior needs to know of this decision."""
    return replace(
        previous,
        replicas=replicas,
        recommendations=behavior.recommended(policy.clamped(wanted), previous, policy.behavior, now),
        changes=behavior.changed(replicas, previous, policy.behavior, now),
    )


def _wake(sample: Sample, policy: Policy, replicas: int) -> float | None:
    if replicas or sample.next_due_seconds is None:
        return None
    return max(0.0, sample.next_due_seconds - policy.window(sample.lead_seconds))
