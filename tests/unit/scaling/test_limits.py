"""Workers that a queue's limits would leave idle are not asked for."""

from __future__ import annotations

from math import inf

import pytest
from delayq.contract import Limits
from delayq.scaling import Policy, Sample, begun, decide

RUSH = Sample(overdue=2000, handler_seconds=2.0)


def policy(max_replicas: int = 100, **limits: int) -> Policy:
    return Policy(slots=10, max_replicas=max_replicas, limits=Limits(**limits))


BOTH = {"rate_per_second": 20, "burst": 5, "max_in_flight": 35}


@pytest.mark.parametrize(
    ("rules", "replicas", "limited_by"),
    [
        (policy(max_in_flight=35), 4, "MaxInFlight"),
        # A burst of 5, then 20 a second of 2 s each, and a tenth more: 49 run at the most.
        (policy(rate_per_second=20, burst=5), 5, "RatePerSecond"),
        (policy(**BOTH), 4, "MaxInFlight"),  # the narrower one is named
        (policy(max_replicas=3, **BOTH), 3, "MaxReplicas"),  # and a bound before it
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_workers_that_a_limit_would_leave_idle_are_not_asked_for(
    rules: Policy, replicas: int, limited_by: str
) -> None:
    decision = decide(RUSH, rules, begun(1, 0.0), 0.0)
    assert (decision.replicas, decision.limited_by, decision.wanted) == (replicas, limited_by, 200)


def test_kinds_that_take_longer_keep_more_workers_busy_at_the_same_rate() -> None:
    """Half of the tasks take 4 s: 2.01 s in the mean, of which 49 run at the most."""
    kinds = Sample(overdue=2000, handler_seconds=0.02, kinds=((0.5, 0.02), (0.5, 4.0)))
    decision = decide(kinds, policy(rate_per_second=20, burst=5), begun(1, 0.0), 0.0)
    assert (decision.replicas, decision.limited_by) == (5, "RatePerSecond")


def test_a_limit_that_is_wide_enough_is_not_named() -> None:
    decision = decide(Sample(overdue=20, handler_seconds=2.0), policy(max_in_flight=20), begun(1, 0.0), 0.0)
    assert (decision.replicas, decision.limited_by) == (2, "None")
    assert policy().useful(2.0) == (inf, "None")


def test_a_rush_is_no_shortfall_of_workers_where_a_limit_would_leave_more_of_them_idle() -> None:
    """2,000 tasks of 2 s each in ten seconds, all at once, and two workers at the most."""
    rush = Sample(due_within=((9.5, 0), (10.0, 2000)), handler_seconds=2.0, lead_seconds=1.0)

    def needed(**limits: int) -> int | None:
        found = decide(rush, policy(max_replicas=2, **limits), begun(1, 0.0), 0.0).shortfall
        return None if found is None else found.needed

    assert needed() == 200
    assert needed(max_in_flight=35) == 4
    assert needed(max_in_flight=20) is None
    assert needed(rate_per_second=5, burst=5) is None
