"""Tasks that fall due and that no earlier reading has counted."""

from __future__ import annotations

import pytest
from delayq.scaling import Sample, begun, decide, horizons
from delayq.scaling.arrivals import unforeseen

from tests.unit.scaling.looks import NOW, policy


def unforeseen_of(rate: float, *, known: bool, lead_seconds: float, looks: int = 40) -> float:
    """Look every period at a flow of tasks, all of them scheduled long ago, or each when it is due."""
    rules = policy(lead_seconds=lead_seconds, max_replicas=1000)
    asked = horizons(rules.window(None))
    seen = tuple((each, int(each * rate) if known else 0) for each in asked)
    memory = begun(0, NOW)
    for number in range(looks):
        look = Sample(due_within=seen, fallen_due=int(rate * 2 * number), handler_seconds=0.5)
        memory = decide(look, rules, memory, NOW + 2 * number).memory
    last = Sample(due_within=seen if known else (), fallen_due=int(rate * 2 * looks))
    return unforeseen(last, memory, lead_seconds, NOW + 2 * looks)


@pytest.mark.parametrize("lead_seconds", [1.0, 2.0, 15.0, 90.0])
def test_an_expected_flow_is_not_counted_again_and_an_unexpected_one_is_counted_whole(
    lead_seconds: float,
) -> None:
    assert unforeseen_of(100.0, known=True, lead_seconds=lead_seconds) == pytest.approx(0.0, abs=1.0)
    assert unforeseen_of(100.0, known=False, lead_seconds=lead_seconds) == pytest.approx(100.0)
