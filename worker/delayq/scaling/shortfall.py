"""Whether a rush is coming that the most workers allowed cannot master in time. Pure.

It is told beforehand, so it must not be a false alarm: of a stretch that is only known as a whole, the tasks are taken
to be spread evenly, which is the kindest reading. What is left is late for certain, if the handlers are as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.scaling.decision import Shortfall
from delayq.scaling.load import fleet, load
from delayq.scaling.model import Fleet, course, late_seconds, required
from delayq.scaling.sample import OUTLOOK_SECONDS

if TYPE_CHECKING:
    from delayq.scaling.model import Load, Moment
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample


def shortfall(
    sample: Sample, policy: Policy, rate: float, outlook_seconds: float = OUTLOOK_SECONDS
) -> Shortfall | None:
    """Look ahead with as many workers as are allowed, from the time on when they can be there.

    Where spec.limits leaves idle who is beyond them, more of them would change nothing: what is late then is late by
    the document's own will.
    """
    useful, _ = policy.useful(sample.handler_seconds)
    if useful <= policy.max_replicas:
        return None
    slots = policy.max_replicas * policy.slots
    if sample.overdue + sample.in_flight + sample.foreseen + rate * outlook_seconds <= slots:
        return None
    due = load(sample, rate, outlook_seconds)
    lead = policy.lead(sample.lead(max(1, policy.max_replicas - sample.ready)))
    worst = _worst(due, policy, fleet(sample, policy, lead))
    if worst is None:
        return None
    # How many would do: as if they were there from the start, for that is what the number is for.
    ideal = Fleet(slots=policy.slots)
    return Shortfall(
        in_seconds=worst[0].at,
        late_seconds=worst[1],
        needed=int(min(useful, max(policy.max_replicas + 1, required(due, ideal, policy.lateness_seconds)))),
    )


def _worst(due: Load, policy: Policy, workers: Fleet) -> tuple[Moment, float] | None:
    """Return when tasks first begin too late, and how late they get at the most."""
    first, late = None, 0.0
    for moment in course(due, workers.ramp(policy.max_replicas)):
        if moment.at < workers.lead_seconds:
            continue
        seconds = late_seconds(moment, due.handler_seconds)
        if seconds > policy.lateness_seconds:
            first, late = first or moment, max(late, seconds)
    return None if first is None else (first, late)
