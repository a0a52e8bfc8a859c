"""Convert a sample into the model's load and fleet. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.scaling.model import Fleet, Inflow, Load, required
from delayq.scaling.policy import HANDLER_SECONDS
from delayq.scaling.sample import NEAR_STEP_SECONDS

if TYPE_CHECKING:
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample

ROUNDING: Final = 1.01
"""Horizons have six digits, so intervals of the same length differ slightly."""


def load(sample: Sample, rate: float, until_seconds: float) -> Load:
    """Return the load until a time from now: present, forecast, and expected at `rate` tasks per second.

    Tasks of a short interval count as a rush at its end. Tasks of a longer one are spread evenly: a rush among them
    becomes visible when it is nearer. Of an interval that ends later, a rush counts as a whole at the end of the time,
    and an even flow in proportion.
    """
    finest = sample.due_within[0][0] if sample.due_within else 0.0
    short = max(NEAR_STEP_SECONDS, finest) * ROUNDING
    inflows = []
    for start, end, tasks in sample.bins() if sample.foreseen else ():
        if start >= until_seconds:
            break
        if tasks:
            last = min(end, until_seconds)
            rush = end - start <= short
            part = tasks * (last - start) / (end - start)
            inflows.append(Inflow(last, last, tasks) if rush else Inflow(start, last, part))
    if rate > 0:
        inflows.append(Inflow(0.0, until_seconds, rate * until_seconds))
    return Load(
        present=sample.overdue + sample.in_flight,
        waited_seconds=sample.overdue_seconds if sample.overdue else 0.0,
        held=sample.in_flight,
        inflows=inflows,
        handler_seconds=HANDLER_SECONDS if sample.mean_seconds is None else sample.mean_seconds,
        kinds=sample.kinds,
    )


def needed(due: Load, sample: Sample, policy: Policy, lead: float) -> int:
    """Return the workers that start all of it in time, or as soon as new workers can claim.

    A start takes between the shortest and the usual time. New workers that are too late after the usual time may be in
    time after the shortest, so both are considered.
    """
    soonest = min(lead, policy.soonest(sample.lead_seconds, sample.soonest_seconds))
    fleets = [fleet(sample, policy, each) for each in (lead, soonest)]
    return max(required(due, each, policy.lateness_seconds) for each in fleets)


def fleet(sample: Sample, policy: Policy, lead: float) -> Fleet:
    """Return ready, starting and possible workers, with `lead` seconds per start."""
    return Fleet(
        slots=policy.slots,
        ready=sample.ready,
        starting=sample.starting,
        starting_in=max(0.0, lead - sample.starting_seconds),
        lead_seconds=lead,
    )
