"""The decision: one look, one number, one reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.autoscaling import Behavior, Fallback, ScaleDown, ScaleUp, ScalingPolicy
from delayq.scaling import decide
from delayq.scaling.memory import Change, Recommendation

from tests.unit.scaling.looks import NOW, decided, policy, sample

if TYPE_CHECKING:
    from delayq.scaling import Policy, Sample


NEVER_FEWER = policy(behavior=Behavior(scale_down=ScaleDown(select_policy="Disabled")))


@pytest.mark.parametrize(
    ("look", "before", "rules", "replicas", "limited_by", "wanted"),
    [
        (sample(next_due_seconds=30 * 86_400.0), 0, None, 0, "None", 0),  # next month's tasks need no worker
        (sample(in_flight=1, ready=1), 1, None, 1, "None", 1),
        # Parked tasks are no demand, but without a worker none would ever get them back.
        (sample(parked=100_000), 0, None, 1, "None", 1),
        (sample(parked=100_000, ready=4), 4, None, 1, "None", 1),
        (sample((12.0, 2000)), 0, None, 20, "MaxReplicas", 32),
        (sample(), 2, policy(min_replicas=2), 2, "MinReplicas", 0),
        (sample(ready=5), 5, NEVER_FEWER, 5, "ScaleDownPolicy", 0),
        # A shard that is silent may only add.
        (sample(whole=False, ready=5), 5, None, 5, "None", 0),
        (sample((12.0, 640), whole=False, ready=5), 5, None, 10, "None", 10),
    ],
)
def test_the_work_decides_within_the_bounds(
    *, look: Sample, before: int, rules: Policy | None, replicas: int, limited_by: str, wanted: int
) -> None:
    decision = decided(look, before=before, rules=rules, active_at=0.0)
    assert (decision.replicas, decision.limited_by, decision.wanted) == (replicas, limited_by, wanted)
    assert decision.reason == ("ValidMetricFound" if look.whole else "MetricsUnavailable")


def test_a_rush_beyond_the_window_waits_and_one_within_it_does_not() -> None:
    """Eleven seconds of lead and two periods are fifteen: then workers are asked for, and there before the rush."""
    assert decided(sample((16.0, 640))).replicas == 0
    assert decided(sample((15.0, 640))).replicas == 10
    assert decided(sample((600.0, 5))).wake_seconds == 585.0
    assert decided(sample()).wake_seconds is None


def test_the_cool_down_alone_decides_on_the_last_worker() -> None:
    """The stabilization window is about the others, however long it is."""
    rules = policy(behavior=Behavior(scale_down=ScaleDown(stabilization_window_seconds=300)))
    past = (Recommendation(NOW - 60, 1),)
    kept = decided(sample(ready=1), before=1, rules=rules, active_at=NOW - 59, recommendations=past)
    assert (kept.replicas, kept.limited_by) == (1, "Cooldown")
    gone = decided(sample(ready=1), before=1, rules=rules, active_at=NOW - 60, recommendations=past)
    assert gone.replicas == 0


def test_the_window_keeps_what_any_decision_in_it_asked_for() -> None:
    busy = (Recommendation(NOW - 61, 9), Recommendation(NOW - 59, 5))
    decision = decided(sample(ready=7), before=7, active_at=NOW - 59, recommendations=busy)
    assert (decision.replicas, decision.limited_by) == (5, "Stabilization")


def test_workers_that_are_needed_again_within_the_cool_down_stay() -> None:
    """576 tasks in half a minute need nine workers: six of them would only go to come back."""
    decision = decided(sample((30.0, 576), in_flight=90, ready=9), before=9)
    assert (decision.replicas, decision.limited_by, decision.wanted) == (9, "DueAgain", 3)


def test_policies_limit_each_period() -> None:
    """Four more a minute, three of which were added already."""
    rules = policy(
        behavior=Behavior(
            scale_up=ScaleUp(policies=(ScalingPolicy(type="Pods", value=4, period_seconds=60),))
        )
    )
    past = {"active_at": NOW, "changes": (Change(NOW - 70, 0, 2), Change(NOW - 30, 2, 5))}
    decision = decided(sample((12.0, 600), ready=5), before=5, rules=rules, **past)
    assert (decision.replicas, decision.limited_by) == (6, "ScaleUpPolicy")


def test_what_cannot_be_read_is_not_zero_and_after_too_many_failures_the_fallback_counts() -> None:
    kept = decided(None, before=4)
    assert (kept.replicas, kept.reason, kept.memory.failures) == (4, "MetricsUnavailable", 1)
    rules = policy(fallback=Fallback(after_seconds=15, replicas=6))
    memory = decided(None, rules=rules).memory
    second = decide(None, rules, memory, NOW + 2)
    third = decide(None, rules, second.memory, NOW + 4)
    assert (second.replicas, second.reason) == (0, "MetricsUnavailable")
    assert (third.replicas, third.reason) == (6, "FallbackActive")


def test_a_rush_beyond_all_workers_is_reported_an_hour_ahead() -> None:
    shortfall = decided(sample((1800.0, 200_000))).shortfall
    assert shortfall is not None
    assert 1700 < shortfall.in_seconds < 1860
    assert shortfall.late_seconds > 60
    assert shortfall.needed > 20
    evenly = decided(sample((1800.0, 2000))).shortfall
    assert evenly is None, "all at once they would be late, spread over the minute they are not"


MIXED: dict[str, Any] = {"handler_seconds": 0.27, "quickest_seconds": 0.01}
"""What is known of 400 tasks of 10 ms and 60 of 2 s before they are in the window: what all took on average."""
REPORTS: dict[str, Any] = MIXED | {"kinds": ((0.5, 60.0), (0.5, 0.01))}


@pytest.mark.parametrize(
    ("look", "late"),
    [
        (sample((60.0, 460), **MIXED), False),
        (sample((12.0, 460), kinds=((60 / 460, 2.0), (400 / 460, 0.01)), **MIXED), False),
        # Later tasks may be e-mails only, of which a rush can be too large all the same.
        (sample((5.0, 60), (1800.0, 20_000), **REPORTS), False),
        (sample((5.0, 60), (1800.0, 2_000_000), **REPORTS), True),
        # In the window the kinds are known.
        (sample((12.0, 600), **REPORTS), True),
    ],
)
def test_kinds_that_differ_fall_short_only_if_it_is_certain(look: Sample, *, late: bool) -> None:
    """Eight workers of ten slots start the first two in time: a warning would contradict what happens."""
    found = decided(look, rules=policy(slots=10, max_replicas=8)).shortfall
    assert (found is not None) == late


def test_tasks_that_no_look_ahead_could_see_are_expected_again() -> None:
    """A hundred a second, scheduled for at once: never in a look ahead, known from the counter."""
    look = sample(fallen_due=10_000, ready=2, in_flight=50)
    memory = decide(look, policy(), decided(sample(fallen_due=9000), before=2).memory, NOW + 10).memory
    decision = decide(sample(fallen_due=11_000, ready=2, in_flight=50), policy(), memory, NOW + 20)
    assert 90 < decision.unforeseen_rate < 110
    assert decision.wanted == 2


FEW_A_MINUTE = ScaleUp(policies=(ScalingPolicy(type="Pods", value=4, period_seconds=60),))


def test_a_scale_up_policy_removes_no_worker_that_another_client_added() -> None:
    """The fallback brought eighteen in a period that allows four: they stay while they are needed."""
    rules = policy(behavior=Behavior(scale_up=FEW_A_MINUTE), max_replicas=40)
    past = {"changes": (Change(NOW - 6, 2, 20),), "active_at": NOW}
    busy = sample(in_flight=640, ready=20, handler_seconds=60.0)
    assert decided(busy, before=20, rules=rules, **past).replicas == 20
    more = decided(
        sample(in_flight=640, overdue=640, ready=20, handler_seconds=60.0), before=20, rules=rules, **past
    )
    assert (more.replicas, more.limited_by) == (20, "ScaleUpPolicy")


def test_a_scale_down_policy_adds_no_worker_that_an_edit_removed() -> None:
    """maxReplicas was five for a moment: a policy of one a minute does not bring the other fifteen back."""
    slow = ScaleDown(policies=(ScalingPolicy(type="Pods", value=1, period_seconds=60),))
    past: dict[str, Any] = {"changes": (Change(NOW - 6, 20, 5),), "active_at": NOW}
    rules = policy(behavior=Behavior(scale_down=slow))
    assert decided(sample(in_flight=1, ready=5), before=5, rules=rules, **past).replicas == 5


def test_what_was_written_before_a_clock_stepped_back_does_not_count() -> None:
    ahead: dict[str, Any] = {"recommendations": (Recommendation(NOW + 3600, 10),), "active_at": NOW + 3600}
    rules = policy(behavior=Behavior(scale_up=FEW_A_MINUTE))
    assert decided(sample(in_flight=1, ready=10), before=10, **ahead).replicas == 1
    pace: dict[str, Any] = {"changes": (Change(NOW + 3600, 0, 4),), "active_at": NOW}
    assert (
        decided(sample(overdue=640, ready=4, handler_seconds=60.0), before=4, rules=rules, **pace).replicas
        == 8
    )


def test_without_any_lead_time_short_notice_is_expected_all_the_same() -> None:
    rules = policy(lead_seconds=0.0)
    first = decided(sample(fallen_due=0, ready=1), before=1, rules=rules).memory
    later = decide(sample(fallen_due=20, ready=1), rules, first, NOW + 2)
    assert later.unforeseen_rate > 10


def test_a_burst_that_was_watched_for_a_moment_is_not_taken_for_a_flow() -> None:
    """Twenty tasks within two seconds of the first look are not ten a second for all of the lead time."""
    rules = policy(lead_seconds=15.0)
    first = decided(sample(fallen_due=0, ready=1), before=1, rules=rules).memory
    later = decide(sample(fallen_due=20, in_flight=20, ready=1), rules, first, NOW + 2)
    assert later.unforeseen_rate < 4
    assert later.replicas == 1


def test_tasks_that_came_and_went_between_two_looks_keep_the_last_worker_for_the_cool_down() -> None:
    before = decided(sample(fallen_due=0, ready=1), before=1, active_at=NOW - 59).memory
    again = decide(sample(fallen_due=3, ready=1), policy(), before, NOW + 2)
    assert again.memory.active_at == NOW + 2
    assert again.replicas == 1


def test_one_task_needs_one_worker_however_long_many_would_take_to_start() -> None:
    """A margin for chance that is right for a single start is not extended to what ten starts take."""
    rules, leads = policy(slots=10, lead_seconds=None), ((1, 2.0), (2, 15.0))
    first = decided(sample(fallen_due=0, lead_seconds=2.0, leads=leads), rules=rules).memory
    look = sample(overdue=1, fallen_due=1, lead_seconds=2.0, leads=leads)
    assert decide(look, rules, first, NOW + 2).replicas == 1
