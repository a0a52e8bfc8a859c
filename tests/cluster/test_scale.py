"""How many workers there are: what the document, the scale subresource and holding say, and nobody else."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.world import World

EXTERNAL: Final = {"mode": "External", "minReplicas": 1, "maxReplicas": 20}


def asked(world: World) -> int:
    return int(world.get("deployments", "orders-worker")["spec"]["replicas"])


STARTS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "unsaid": ({}, 1),
    "none": ({"worker": {"replicas": 0}}, 0),
    "internal": ({"autoscaling": {"minReplicas": 4, "maxReplicas": 9}}, 4),
    "external": ({"autoscaling": EXTERNAL, "worker": {"replicas": 6}}, 6),
    "drained": ({"worker": {"replicas": 3}, "suspend": True, "suspendPolicy": "Drain"}, 0),
}


def test_workers_start_in_the_wanted_number(world: World) -> None:
    """The Deployment never asks for another number than the wanted one, not even for a moment."""
    with ExitStack() as stack:
        loads = {name: ("deployments", f"{name}-worker", "spec", "replicas") for name in STARTS}
        seen = {name: stack.enter_context(world.numbers(*load)) for name, load in loads.items()}
        for name, (spec, _) in STARTS.items():
            world.create(name, **spec)
        for name in STARTS:
            world.settle(name)
    assert seen == {name: [number] for name, (_, number) in STARTS.items()}
    told = {name: world.queue(name)["status"]["desiredReplicas"] for name in STARTS}
    assert told == {name: number for name, (_, number) in STARTS.items()}


def test_kubectl_scale_sets_the_number_of_workers_in_mode_external_alone(world: World) -> None:
    """As by an HPA. In mode Internal that number is ignored, and stays; the operator starts from what there is."""
    world.start(autoscaling=EXTERNAL)
    assert world.until("ScalingActive", "True", "ExternalAutoscaler")
    world.kubectl("scale", "delayqueue/orders", "--replicas=5")
    eventually(lambda: asked(world) == 5, timeout_s=5)
    world.event("ScaledUp", "5 workers")
    selector = world.cluster.rest.get(f"{world.path('delayqueues', 'orders')}/scale")["status"]["selector"]
    assert "app.kubernetes.io/component=worker" in selector
    eventually(lambda: len(world.items("pods", labelSelector=selector)) == 5)
    eventually(lambda: world.queue()["status"]["replicas"] == 5, what="status.replicas")
    world.edit(autoscaling={"mode": "Internal"})
    world.until("ScalingActive", "Unknown", "NotEvaluated")
    # Nothing runs scanners here, so nothing was ever read: the number is kept within its bounds.
    world.edit(worker={"replicas": 7}, autoscaling={"minReplicas": 8})
    eventually(lambda: asked(world) == 8)
    world.event("ScaledUp", "5 → 8 workers, the nearest that spec.autoscaling allows")
    assert world.queue()["spec"]["worker"]["replicas"] == 7
    world.edit(autoscaling=EXTERNAL)
    eventually(lambda: asked(world) == 7)


def test_draining_takes_all_workers_away_and_gives_them_back(world: World) -> None:
    """Drain scales to zero and says so in Ready; the end of it brings back as many as were asked for."""
    world.start(worker={"replicas": 3})
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    world.edit(suspend=True)
    world.settle()
    assert (asked(world), world.queue()["status"]["desiredReplicas"]) == (3, 3)
    world.until("Ready", "True", "Suspended")
    world.edit(suspend=True, suspendPolicy="Drain")
    eventually(lambda: asked(world) == 0, timeout_s=5)
    assert "Drain" in world.until("Ready", "True", "Suspended")["message"]
    world.until("ScalingActive", "False", "Suspended")
    world.edit(suspend=False)
    eventually(lambda: asked(world) == 3, timeout_s=5)
    world.until("ScalingActive", "False", "AutoscalingDisabled")
