"""How many workers: the spec's number, the scale subresource, the decision, or the current number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.scaling import Sample, sentence
from delayq_operator.scaling.scaling import scale
from delayq_operator.scrape.backlog import SuspendCommand

from tests.unit.operator.queues import queue
from tests.unit.operator.views import decided

if TYPE_CHECKING:
    from delayq.scaling import Decision

BOUNDS = {"minReplicas": 2, "maxReplicas": 5}
EXTERNAL = {"mode": "External", **BOUNDS}

CASES: list[tuple[dict[str, Any], int | None, int, str]] = [
    ({}, 7, 1, "AutoscalingDisabled"),
    ({"worker": {"replicas": 3}}, 7, 3, "AutoscalingDisabled"),
    ({"autoscaling": EXTERNAL, "worker": {"replicas": 4}}, 9, 4, "ExternalAutoscaler"),
    ({"autoscaling": BOUNDS, "worker": {"replicas": 3}}, 4, 4, "NotEvaluated"),
    ({"autoscaling": BOUNDS}, None, 2, "NotEvaluated"),
    ({"autoscaling": {"minReplicas": 0, "maxReplicas": 5}}, None, 1, "NotEvaluated"),
    ({"autoscaling": BOUNDS}, 4, 4, "NotEvaluated"),  # the first look decides
    ({"autoscaling": BOUNDS}, 9, 5, "NotEvaluated"),  # no more than that in any case
    ({"autoscaling": BOUNDS}, 0, 2, "NotEvaluated"),
    ({"autoscaling": BOUNDS, "suspend": True}, 9, 9, "Suspended"),  # also out of bounds
    ({"autoscaling": BOUNDS, "suspend": True, "suspendPolicy": "Drain"}, 3, 0, "Suspended"),
    ({"autoscaling": EXTERNAL, "suspend": True, "suspendPolicy": "Drain"}, 3, 0, "Suspended"),
    # Hold keeps only the operator from changing the number.
    ({"worker": {"replicas": 3}, "suspend": True}, 7, 3, "AutoscalingDisabled"),
    ({"autoscaling": EXTERNAL, "worker": {"replicas": 4}, "suspend": True}, 9, 4, "ExternalAutoscaler"),
]


@pytest.mark.parametrize(("spec", "current", "replicas", "reason"), CASES)
def test_the_number_of_workers_without_a_decision(
    spec: dict[str, Any], current: int | None, replicas: int, reason: str
) -> None:
    found = scale(queue(**spec), current)
    assert (found.replicas, found.reason, found.decision) == (replicas, reason, None)


DECISION = decided(Sample(overdue=5_000, ready=1))
FALLBACK = decided(None, fallback={"afterSeconds": 10, "replicas": 4})
COMMAND = SuspendCommand(1_800_000_000.0)
HELD = {"suspend": True, "autoscaling": BOUNDS}


@pytest.mark.parametrize(
    ("spec", "decision", "more", "replicas", "reason"),
    [
        ({"autoscaling": BOUNDS}, DECISION, {}, 10, "ValidMetricFound"),
        ({"autoscaling": BOUNDS}, decided(None), {}, 1, "MetricsUnavailable"),
        ({"autoscaling": BOUNDS}, FALLBACK, {}, 4, "FallbackActive"),
        # Nothing is carried out while it is suspended, or while no worker can use the guard.
        ({"autoscaling": BOUNDS}, DECISION, {"left_alone": True}, 3, "ReconciliationSuspended"),
        ({"autoscaling": BOUNDS}, DECISION, {"guard_down": True}, 3, "GuardUnreachable"),
        (HELD, DECISION, {}, 3, "Suspended"),
        (HELD, DECISION, {"guard_down": True}, 3, "Suspended"),
        (HELD | {"suspend": True, "suspendPolicy": "Drain"}, DECISION, {}, 0, "Suspended"),
        ({"autoscaling": EXTERNAL}, None, {"guard_down": True}, 1, "ExternalAutoscaler"),
        # The command counts as the document does.
        ({"autoscaling": BOUNDS}, DECISION, {"command": COMMAND}, 3, "Suspended"),
        ({"worker": {"replicas": 2}}, None, {"command": COMMAND}, 2, "AutoscalingDisabled"),
        ({"worker": {"replicas": 2}}, None, {"command": COMMAND._replace(drains=True)}, 0, "Suspended"),
        (HELD, DECISION, {"command": COMMAND._replace(drains=True)}, 0, "Suspended"),
    ],
)
def test_a_decision_counts_unless_something_keeps_the_number(
    spec: dict[str, Any], decision: Decision | None, more: dict[str, Any], *, replicas: int, reason: str
) -> None:
    found = scale(queue(**spec), 3, decision, **more)
    assert (found.replicas, found.reason) == (replicas, reason)
    carried_out = reason in ("ValidMetricFound", "MetricsUnavailable", "FallbackActive")
    assert found.decision == (decision if carried_out else None)
    assert (found.message == sentence(decision or DECISION)) is carried_out


@pytest.mark.parametrize(
    ("spec", "current", "message"),
    [
        ({"autoscaling": BOUNDS}, 3, "3 workers, kept: the metrics were not read yet"),
        (
            {"autoscaling": BOUNDS},
            9,
            "5 workers, the nearest that spec.autoscaling allows: the metrics were not read yet",
        ),
        ({}, None, "1 worker: spec.worker.replicas, without spec.autoscaling"),
    ],
)
def test_a_number_is_explained(spec: dict[str, Any], current: int | None, message: str) -> None:
    assert scale(queue(**spec), current).message == message
