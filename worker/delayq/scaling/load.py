"""From a sample to the model's terms: what there is to do, and who is there to do it. Pure."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from delayq.scaling.model import Clump, Fleet, Load
from delayq.scaling.policy import HANDLER_SECONDS
from delayq.scaling.sample import FINE_BINS, FINEST_SECONDS

if TYPE_CHECKING:
    from delayq.scaling.policy import Policy
    from delayq.scaling.sample import Sample


def load(sample: Sample, rate: float, until_seconds: float) -> Load:
    """Return everything up to a time from now: what is there, foreseen, and expected at `rate` tasks per second.

    All tasks of a fine bin fall due at its end, as a rush would. Those of a coarse bin are spread evenly: only somebody
    who looks far ahead meets them, and a rush among them is told as one when it comes nearer.
    """
    clumps: list[Clump] = []
    for start, end, tasks in sample.bins():
        if start >= until_seconds:
            break
        if tasks:
            clumps += _spread(start, end, tasks, step_seconds(sample))
    if rate > 0:
        step = until_seconds / FINE_BINS
        clumps += [Clump(step * (number + 1), rate * step) for number in range(FINE_BINS)]
    return Load(
        present=sample.overdue + sample.in_flight,
        held=sample.in_flight,
        clumps=[clump for clump in clumps if clump.at <= until_seconds],
        handler_seconds=HANDLER_SECONDS if sample.handler_seconds is None else sample.handler_seconds,
    )


def step_seconds(sample: Sample) -> float:
    """Return the width of a fine bin."""
    return sample.due_within[0][0] if sample.due_within else FINEST_SECONDS


def _spread(start: float, end: float, tasks: int, step: float) -> list[Clump]:
    parts = 1 if end - start < 1.25 * step else min(FINE_BINS, ceil((end - start) / step))
    width = (end - start) / parts
    return [Clump(start + width * (number + 1), tasks / parts) for number in range(parts)]


def fleet(sample: Sample, policy: Policy) -> Fleet:
    """Return the workers that are there and those that can be."""
    lead = policy.lead(sample.lead_seconds)
    return Fleet(
        slots=policy.slots,
        ready=sample.ready,
        starting=sample.starting,
        starting_in=max(0.0, lead - sample.starting_seconds),
        lead_seconds=lead,
    )
