"""Samples and policies for these tests."""

# ruff: noqa: ANN401 -- fields of dataclasses, of any type

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delayq.scaling import Policy, Sample, begun, decide, horizons

if TYPE_CHECKING:
    from delayq.scaling.decision import Decision

NOW = 1_750_000_000.0
LEAD = 11.0


def policy(**changed: Any) -> Policy:
    """Return a policy of 20 workers at most, 32 slots each, one second allowed."""
    return Policy(**{"slots": 32, "max_replicas": 20, **changed})


def sample(*rushes: tuple[float, int], **changed: Any) -> Sample:
    """Return a look at a queue in which so many tasks fall due in so many seconds, each time at once."""
    asked = horizons(policy().window(LEAD))
    seen = tuple((each, sum(tasks for at, tasks in rushes if at <= each)) for each in asked)
    known = {"handler_seconds": 0.5, "lead_seconds": LEAD, "due_within": seen}
    if rushes:
        known["next_due_seconds"] = min(at for at, _ in rushes)
    return Sample(**{**known, **changed})


def decided(look: Sample | None, *, before: int = 0, rules: Policy | None = None, **past: Any) -> Decision:
    """Decide with a past in which nothing happened for a long time, but for what is given."""
    memory = replace(begun(before, NOW - 10_000), **past)
    return decide(look, rules or policy(), memory, NOW)
