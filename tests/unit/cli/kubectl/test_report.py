"""Which events a report takes: those of the queue, its children and their pods, also of pods that are gone."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.cli.kubectl.report import _about
from delayq_operator.base import names

LONG = "orders." * 10 + "eu"
WORKER = names.worker(LONG)  # 63 characters


def event(kind: str, name: str) -> dict[str, Any]:
    return {"metadata": {}, "involvedObject": {"kind": kind, "name": name}}


def taken(queue: str, kind: str, name: str) -> bool:
    return bool(_about(queue, [event(kind, name)]))


@pytest.mark.parametrize(
    ("queue", "kind", "name"),
    [
        ("orders", "DelayQueue", "orders"),
        *(("orders", kind, name) for kind, name in sorted(names.children("orders"))),
        ("orders", "ReplicaSet", "orders-worker-6d5f8c7b9"),
        ("orders", "Pod", "orders-worker-6d5f8c7b9-x2v4z"),
        ("orders", "Pod", "orders-reaper-29401230-x2v4z"),
        *((LONG, kind, name) for kind, name in sorted(names.children(LONG))),
        (LONG, "ReplicaSet", f"{WORKER}-6d5f8c7b9"),
        # Kubernetes shortens a generated name to 58 characters, and adds five.
        (LONG, "Pod", f"{WORKER[:58]}x2v4z"),
        (LONG, "Pod", f"{names.reaper(LONG)}-29401x2v4z"),
        ("9.orders", "Endpoints", names.metrics_service("9.orders")),
    ],
)
def test_an_event_of_the_queue_is_taken(queue: str, kind: str, name: str) -> None:
    assert taken(queue, kind, name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("DelayQueue", "orders-eu"),
        ("Pod", "orders-eu-worker-6d5f8c7b9-x2v4z"),
        ("Pod", "orders-worker-x2-worker-6d5f8c7b9-x2v4z"),
        ("ConfigMap", "orders-worker-config"),
        ("Pod", "order"),
    ],
)
def test_an_event_of_another_object_is_not(kind: str, name: str) -> None:
    assert not taken("orders", kind, name)


def test_the_latest_event_is_the_last() -> None:
    late, early = event("DelayQueue", "orders"), event("DelayQueue", "orders")
    late["lastTimestamp"], early["lastTimestamp"] = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
    assert _about("orders", [late, {"metadata": {}}, early]) == [early, late]
