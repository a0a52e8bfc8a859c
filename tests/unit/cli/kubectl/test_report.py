"""Which events a report takes, also of pods that are gone, and what it says of metrics that it could not get."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
from delayq.cli.kubectl import allowed
from delayq.cli.kubectl.refusals import refusal
from delayq.cli.kubectl.report import METRICS, METRICS_SECONDS, _about
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


def test_a_process_without_metrics_is_named_with_its_cause() -> None:
    """A frozen one, and one that has not begun to listen: not gathered, and why."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        refused = note_of(port)
        listening.listen()  # the kernel takes the connection, and no process answers
        frozen = note_of(port)
    assert refused == f"no metrics on port {port}, [Errno 111] Connection refused"
    assert frozen == f"no metrics on port {port}, timed out"


def note_of(port: int) -> str:
    """What a report says of a pod whose metrics are on this port."""
    program = METRICS.replace(str(names.METRICS_PORT), str(port)).replace(f"={METRICS_SECONDS})", "=0.2)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return allowed.sentence(refusal(f"{done.stderr}command terminated with exit code 1\n").message)
