"""How many workers: the spec's number, what the scale subresource was told, what was decided, or what there is."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.scaling import Sample, sentence
from delayq_operator.scaling.scaling import REASONS, Scale, scale

from tests.unit.operator.queues import queue
from tests.unit.operator.views import decided

BOUNDS = {"minReplicas": 2, "maxReplicas": 5}
EXTERNAL = {"mode": "External", **BOUNDS}

CASES: list[tuple[dict[str, Any], int | None, int, str]] = [
    ({}, None, 1, "AutoscalingDisabled"),
    ({}, 7, 1, "AutoscalingDisabled"),
    ({"worker": {"replicas": 3}}, 7, 3, "AutoscalingDisabled"),
    ({"worker": {"replicas": 0}}, 7, 0, "AutoscalingDisabled"),
    ({"autoscaling": EXTERNAL, "worker": {"replicas": 4}}, 9, 4, "ExternalAutoscaler"),
    ({"autoscaling": EXTERNAL}, 3, 1, "ExternalAutoscaler"),
    ({"autoscaling": BOUNDS, "worker": {"replicas": 3}}, 4, 4, "NotEvaluated"),
    ({"autoscaling": BOUNDS}, None, 2, "NotEvaluated"),
    ({"autoscaling": {"minReplicas": 0, "maxReplicas": 5}}, None, 1, "NotEvaluated"),
    ({"autoscaling": BOUNDS}, 4, 4, "NotEvaluated"),  # the first look decides
    ({"autoscaling": BOUNDS}, 9, 5, "NotEvaluated"),  # whatever it says, it will not be more
    ({"autoscaling": BOUNDS}, 0, 2, "NotEvaluated"),
    ({"autoscaling": BOUNDS, "stopPolicy": "Hold"}, 3, 3, "ClaimsSuspended"),
    ({"autoscaling": BOUNDS, "stopPolicy": "HoldAndDrain"}, 3, 0, "ClaimsSuspended"),
    ({"worker": {"replicas": 3}, "stopPolicy": "HoldAndDrain"}, 3, 0, "ClaimsSuspended"),
]


@pytest.mark.parametrize(("spec", "current", "replicas", "reason"), CASES)
def test_the_number_of_workers_that_nobody_decides_on(
    spec: dict[str, Any], current: int | None, replicas: int, reason: str
) -> None:
    found = scale(queue(**spec), current)
    assert (found.replicas, found.reason, found.decision) == (replicas, reason, None)


def test_what_nobody_has_read_keeps_the_number_within_its_bounds_and_says_so() -> None:
    why = "the metrics were not read yet"
    assert scale(queue(autoscaling=BOUNDS), 3).message == f"3 workers, kept: {why}"
    moved = scale(queue(autoscaling=BOUNDS), 9).message
    assert moved == f"5 workers, the nearest that spec.autoscaling allows: {why}"


def test_what_was_decided_counts_with_its_sentence() -> None:
    decision = decided(Sample(overdue=5_000, ready=1))
    found = scale(queue(autoscaling=BOUNDS), 1, decision)
    assert (found.replicas, found.reason, found.decision) == (10, "ValidMetricsFound", decision)
    assert found.message == sentence(decision)


def test_without_metrics_the_number_follows_no_work() -> None:
    fallbacks: list[dict[str, Any]] = [{}, {"fallback": {"failureThreshold": 1, "replicas": 4}}]
    for fallback in fallbacks:
        found = scale(queue(autoscaling=BOUNDS), 1, decided(None, **fallback))
        assert (found.reason, REASONS[found.reason]) == ("MetricsUnavailable", False)


def test_a_decision_is_not_carried_out_while_held_or_paused() -> None:
    decision = decided(Sample(overdue=5_000, ready=1))
    assert scale(queue(autoscaling=BOUNDS), 3, decision, paused=True).reason == "Paused"
    for policy in ("Hold", "HoldAndDrain"):
        found = scale(queue(autoscaling=BOUNDS, stopPolicy=policy), 3, decision)
        assert (found.reason, found.decision) == ("ClaimsSuspended", None)
        assert found.replicas <= 3


def test_while_no_worker_can_use_the_guard_the_number_stays_and_the_reason_is_told() -> None:
    decision = decided(Sample(overdue=5_000, ready=1))
    found = scale(queue(autoscaling=BOUNDS), 3, decision, guard_down=True)
    assert (found.replicas, found.reason, found.decision) == (3, "GuardUnreachable", None)
    assert (
        found.message
        == "3 workers, kept: no worker can use the guard, of two or more; further ones could not either"
    )
    assert scale(queue(), 3, guard_down=True).reason == "AutoscalingDisabled"
    assert scale(queue(autoscaling=EXTERNAL), 3, guard_down=True).reason == "ExternalAutoscaler"
    held = scale(queue(autoscaling=BOUNDS, stopPolicy="Hold"), 3, guard_down=True)
    assert held.reason == "ClaimsSuspended"


def test_one_worker_is_not_called_workers() -> None:
    assert scale(queue(), None) == Scale(
        replicas=1,
        reason="AutoscalingDisabled",
        message="1 worker: spec.worker.replicas, without spec.autoscaling",
    )
