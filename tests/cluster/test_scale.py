"""How many workers there are: what the document, the scale subresource and holding say, and nobody else."""

from __future__ import annotations

import threading
from typing import Any, Final

import pytest

from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.world import World, managers

pytestmark = pytest.mark.xdist_group("scale")

EXTERNAL: Final = {"mode": "External", "minReplicas": 1, "maxReplicas": 20}


def asked(world: World) -> int:
    return int(world.get("deployments", "orders-worker")["spec"]["replicas"])


STARTS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "unsaid": ({}, 1),
    "three": ({"worker": {"replicas": 3}}, 3),
    "none": ({"worker": {"replicas": 0}}, 0),
    "internal": ({"autoscaling": {"minReplicas": 4, "maxReplicas": 9}}, 4),
    "external": ({"autoscaling": EXTERNAL, "worker": {"replicas": 6}}, 6),
    "drained": ({"worker": {"replicas": 3}, "stopPolicy": "HoldAndDrain"}, 0),
    "held": ({"worker": {"replicas": 3}, "stopPolicy": "Hold"}, 3),
}


def test_workers_start_in_the_wanted_number(world: World) -> None:
    """The Deployment never asks for another number than the wanted one, not even for a moment."""
    since = world.cluster.rest.get(world.path("deployments"))["metadata"]["resourceVersion"]
    seen: dict[str, set[int]] = {f"{name}-worker": set() for name in STARTS}
    done = threading.Event()

    def watch() -> None:
        for _, body in world.cluster.rest.watch(
            world.path("deployments"), since=since, timeout_s=lenient(30)
        ):
            if body["metadata"]["name"] in seen:
                seen[body["metadata"]["name"]].add(body["spec"]["replicas"])
            if "last" in body["metadata"].get("labels", {}):
                break
        done.set()

    threading.Thread(target=watch, daemon=True).start()
    for name, (spec, _) in STARTS.items():
        world.create(name, **spec)
    for name in STARTS:
        world.settle(name)
    world.patch("deployments", "held-worker", {"metadata": {"labels": {"last": "one"}}})
    assert done.wait(lenient(30))
    assert seen == {f"{name}-worker": {number} for name, (_, number) in STARTS.items()}
    told = {name: world.queue(name)["status"]["desiredReplicas"] for name in STARTS}
    assert told == {name: number for name, (_, number) in STARTS.items()}


def test_kubectl_scale_sets_the_number_of_workers(world: World) -> None:
    """In mode External the scale subresource is how workers are scaled, as by an HPA."""
    world.start(autoscaling=EXTERNAL)
    assert world.until("ScalingActive", "True", "ExternalAutoscaler")
    world.kubectl("scale", "delayqueue/orders", "--replicas=5")
    eventually(lambda: asked(world) == 5, timeout_s=5)
    world.event("ScaledUp", "5 workers")
    scale = world.cluster.rest.get(f"{world.path('delayqueues', 'orders')}/scale")
    assert scale["spec"]["replicas"] == 5
    assert "app.kubernetes.io/component=worker" in scale["status"]["selector"]
    pods = world.items("pods", labelSelector=scale["status"]["selector"])
    eventually(lambda: len(world.items("pods", labelSelector=scale["status"]["selector"])) == 5)
    assert {pod["metadata"]["labels"]["delayq.dev/queue"] for pod in pods} <= {"orders"}
    eventually(lambda: world.queue()["status"]["replicas"] == 5, what="status.replicas")


def test_from_an_hpa_to_the_operator_and_back_takes_a_word(world: World) -> None:
    """In mode Internal the number in the spec is ignored, and stays; the operator starts from what there is."""
    world.start(autoscaling=EXTERNAL, worker={"replicas": 3})
    eventually(lambda: asked(world) == 3)
    world.edit(autoscaling={"mode": "Internal"})
    world.until("ScalingActive", "Unknown", "NotEvaluated")
    world.kubectl("scale", "delayqueue/orders", "--replicas=5")
    world.nudge()
    assert (asked(world), world.queue()["spec"]["worker"]["replicas"]) == (3, 5)
    world.edit(autoscaling={"mode": "External"})
    eventually(lambda: asked(world) == 5)


def test_the_number_is_not_for_others_to_change(world: World) -> None:
    """kubectl scale of the Deployment is put back, and the scaler owns the number again."""
    world.start(worker={"replicas": 2})
    mark = world.enqueue()
    world.kubectl("scale", "deployment/orders-worker", "--replicas=7")
    eventually(lambda: asked(world) == 2, timeout_s=5)
    world.event("ScaledDown", "7 → 2 workers")
    world.settle()
    worker = world.get("deployments", "orders-worker")
    assert managers(worker, "spec", "replicas") == {"delayq-scaler"}
    assert [w for w in world.written(mark) if "deployments" in w] == ["patch deployments/orders-worker"]


def test_without_metrics_a_number_is_kept_within_its_bounds(world: World) -> None:
    """Nobody runs scanners here, so nothing was ever read: the number is kept, and it says so."""
    world.start(autoscaling={"minReplicas": 2, "maxReplicas": 6})
    for minimum, maximum, number in ((5, 6, 5), (1, 3, 3), (1, 9, 3)):
        world.edit(autoscaling={"minReplicas": minimum, "maxReplicas": maximum})
        eventually(lambda number=number: asked(world) == number, timeout_s=10)  # type: ignore[misc]
        world.settle()
        assert asked(world) == number
        assert world.queue()["status"]["desiredReplicas"] == number
    world.until("ScalingActive", "Unknown", "NotEvaluated")
    world.event("ScaledUp", "2 → 5 workers, the nearest that spec.autoscaling allows")


def test_draining_takes_all_workers_away_and_gives_them_back(world: World) -> None:
    """HoldAndDrain scales to zero and says so in Ready; None brings back as many as were asked for."""
    world.start(worker={"replicas": 3})
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    world.edit(stopPolicy="Hold")
    world.settle()
    assert (asked(world), world.queue()["status"]["desiredReplicas"]) == (3, 3)
    world.until("Ready", "False", "ClaimsSuspended")
    world.edit(stopPolicy="HoldAndDrain")
    eventually(lambda: asked(world) == 0, timeout_s=5)
    assert "HoldAndDrain" in world.until("Ready", "False", "ClaimsSuspended")["message"]
    world.until("ScalingActive", "False", "ClaimsSuspended")
    world.edit(stopPolicy="None")
    eventually(lambda: asked(world) == 3, timeout_s=5)
    world.until("ScalingActive", "False", "AutoscalingDisabled")
