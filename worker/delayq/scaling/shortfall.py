"""Forecasts a rush that maxReplicas workers cannot start in time. Pure.

To avoid false alarms, tasks of a long interval count as spread evenly, the most favorable case. The forecast lateness
is certain if the handler time does not change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delayq.scaling.decision import Shortfall
from delayq.scaling.load import fleet, load
from delayq.scaling.model import Fleet, course, late_seconds, required
from delayq.scaling.sample import OUTLOOK_SECONDS

if TYPE_CHECKING:
    from delayq.scaling.model import Load, Moment
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample


def shortfall(sample: Sample, policy: Policy, rate: float) -> Shortfall | None:
    """Simulate maxReplicas workers, from the time when they can be ready.

    If kinds of tasks differ in their handler times, those of the window are weighted by kind. Later tasks may be of any
    kind, so all of them count as the quickest, the most favorable case.
    """
    lead = policy.lead(sample.lead(max(1, policy.max_replicas - sample.ready)))
    if sample.quickest_seconds is None:
        return _shortfall(sample, policy, rate, lead=lead, until_seconds=OUTLOOK_SECONDS)
    found = None
    if sample.kinds:
        found = _shortfall(sample, policy, rate, lead=lead, until_seconds=policy.window(lead))
    quick = replace(sample, kinds=(), handler_seconds=sample.quickest_seconds)
    return found or _shortfall(quick, policy, rate, lead=lead, until_seconds=OUTLOOK_SECONDS)


def _shortfall(
    sample: Sample, policy: Policy, rate: float, *, lead: float, until_seconds: float
) -> Shortfall | None:
    """Return the shortfall until a time from now.

    None if spec.limits, not maxReplicas, limits the number of busy workers: more workers would not help.
    """
    useful, _ = policy.useful(sample.mean_seconds)
    if useful <= policy.max_replicas:
        return None
    due = load(sample, rate, until_seconds)
    if due.slots_at_once(policy.lateness_seconds) <= policy.max_replicas * policy.slots:
        return None
    worst = _worst(due, policy, fleet(sample, policy, lead))
    if worst is None:
        return None
    # Workers that would suffice if they were ready now.
    ideal = Fleet(slots=policy.slots)
    return Shortfall(
        in_seconds=worst[0].at,
        late_seconds=worst[1],
        needed=int(min(useful, max(policy.max_replicas + 1, required(due, ideal, policy.lateness_seconds)))),
    )


def _worst(due: Load, policy: Policy, workers: Fleet) -> tuple[Moment, float] | None:
    """Return when tasks first start too late, and the greatest lateness."""
    first, late = None, 0.0
    for moment in course(due, workers.ramp(policy.max_replicas)):
        if moment.at < workers.lead_seconds:
            continue
        seconds = late_seconds(moment, due.handler_seconds)
        if seconds > policy.lateness_seconds:
            first, late = first or moment, max(late, seconds)
    return None if first is None else (first, late)
