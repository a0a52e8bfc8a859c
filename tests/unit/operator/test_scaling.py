"""How many workers: the spec's number, what the scale subresource was told, or what there is, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from delayq_operator.scaling import REASONS, Scale, scale

from tests.unit.operator.queues import queue

BOUNDS = {"minReplicas": 2, "maxReplicas": 5}
EXTERNAL = {"mode": "External", **BOUNDS}

CASES: list[tuple[dict[str, Any], int | None, int, str]] = [
    ({}, None, 1, "Fixed"),
    ({}, 7, 1, "Fixed"),
    ({"worker": {"replicas": 3}}, 7, 3, "Fixed"),
    ({"worker": {"replicas": 0}}, 7, 0, "Fixed"),
    ({"autoscaling": BOUNDS}, None, 2, "KeptWithinBounds"),
    ({"autoscaling": BOUNDS}, 0, 2, "KeptWithinBounds"),
    ({"autoscaling": BOUNDS}, 4, 4, "KeptWithinBounds"),
    ({"autoscaling": BOUNDS}, 9, 5, "KeptWithinBounds"),
    ({"autoscaling": {"minReplicas": 0, "maxReplicas": 5}}, None, 1, "KeptWithinBounds"),
    ({"autoscaling": {"minReplicas": 0, "maxReplicas": 5}}, 0, 1, "KeptWithinBounds"),  # after a hold
    ({"autoscaling": EXTERNAL, "worker": {"replicas": 4}}, 9, 4, "External"),
    ({"autoscaling": EXTERNAL}, 3, 3, "External"),
    ({"autoscaling": EXTERNAL}, None, 2, "External"),
    ({"autoscaling": BOUNDS, "stopPolicy": "Hold"}, 3, 3, "KeptWithinBounds"),
    ({"autoscaling": BOUNDS, "stopPolicy": "HoldAndDrain"}, 3, 0, "Held"),
    ({"worker": {"replicas": 3}, "stopPolicy": "HoldAndDrain"}, 3, 0, "Held"),
]


@pytest.mark.parametrize(("spec", "current", "replicas", "reason"), CASES)
def test_the_number_of_workers(spec: dict[str, Any], current: int | None, replicas: int, reason: str) -> None:
    decided = scale(queue(**spec), current)
    assert (decided.replicas, decided.reason) == (replicas, reason)


def test_every_reason_can_be_reached() -> None:
    assert {reason for *_, reason in CASES} == set(REASONS)


def test_one_worker_is_not_called_workers() -> None:
    assert scale(queue(), None) == Scale(
        replicas=1, reason="Fixed", message="1 worker: the default, without spec.autoscaling"
    )
