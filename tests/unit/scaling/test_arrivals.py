"""What falls due that no look saw coming, told from what earlier looks saw."""

from __future__ import annotations

import pytest
from delayq.scaling import Memory, Sample, begun, decide, horizons
from delayq.scaling.arrivals import unforeseen

from tests.unit.scaling.looks import NOW, policy


def followed(
    rate: float, *, known: bool, lead_seconds: float, looks: int = 40
) -> tuple[Sample, Memory, float]:
    """Look every period at a flow of tasks, all of them scheduled long ago, or each when it is due."""
    rules = policy(lead_seconds=lead_seconds, max_replicas=1000)
    asked = horizons(rules.window(None))
    memory = begun(0, NOW)
    look = Sample()
    for number in range(looks):
        seen = tuple((each, int(each * rate) if known else 0) for each in asked)
        look = Sample(due_within=seen, fallen_due=int(rate * 2 * number), handler_seconds=0.5)
        memory = decide(look, rules, memory, NOW + 2 * number).memory
    return look, memory, NOW + 2 * looks


@pytest.mark.parametrize("lead_seconds", [1.0, 2.0, 5.0, 15.0, 90.0])
def test_a_flow_that_was_seen_coming_is_not_counted_again(lead_seconds: float) -> None:
    look, memory, now = followed(100.0, known=True, lead_seconds=lead_seconds)
    later = Sample(due_within=look.due_within, fallen_due=look.fallen_due + 200)  # type: ignore[operator]
    assert unforeseen(later, memory, lead_seconds, now) == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("lead_seconds", [1.0, 2.0, 5.0, 15.0, 90.0])
def test_a_flow_that_nothing_foretold_is_told_whole(lead_seconds: float) -> None:
    look, memory, now = followed(100.0, known=False, lead_seconds=lead_seconds)
    later = Sample(fallen_due=look.fallen_due + 200)  # type: ignore[operator]
    assert unforeseen(later, memory, lead_seconds, now) == pytest.approx(100.0)
