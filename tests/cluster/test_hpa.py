"""With autoscaling.mode External a real HorizontalPodAutoscaler scales workers, and the operator does as it says.

No metrics are served here: an HPA keeps its bounds without any, which is enough to have it write several numbers.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.cluster.world import World, managers

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object

MANIFEST: Final = ROOT / "examples" / "hpa" / "hpa.yaml"
EXTERNAL: Final = {"mode": "External", "maxReplicas": 20}
HPAS: Final = "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"


def reported(world: World, kind: str) -> Object:
    """A condition of the HPA."""
    body = world.cluster.rest.get(f"{HPAS.format(namespace=world.namespace)}/orders")
    found: list[Object] = [
        each for each in body.get("status", {}).get("conditions", ()) if each["type"] == kind
    ]
    assert found, body.get("status")
    return found[0]


def workers(world: World) -> int:
    return int(world.get("deployments", "orders-worker")["spec"]["replicas"])


def until_workers(world: World, number: int) -> None:
    """Until the DelayQueue, the Deployment and the pods agree."""

    def agree() -> bool:
        body = world.queue()
        found = {
            "spec": body["spec"]["worker"].get("replicas"),
            "deployment": workers(world),
            "desired": body["status"]["desiredReplicas"],
            "pods": body["status"]["replicas"],
        }
        assert set(found.values()) == {number}, found
        return True

    eventually(agree, timeout_s=60, what=f"{number} workers")


def test_an_hpa_says_how_many_workers_there_are(world: World) -> None:
    """Up and down, from a spec without a number; the operator does not change what the HPA wrote.

    kubectl scale works within its bounds; draining takes all workers away, and gives them back.
    """
    hpa: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    path = HPAS.format(namespace=world.namespace)
    with (
        world.numbers("delayqueues", "orders", "spec", "worker", "replicas") as asked,
        world.numbers("deployments", "orders-worker", "spec", "replicas") as made,
    ):
        world.start(autoscaling=EXTERNAL)
        world.cluster.rest.create(path, hpa | {"spec": hpa["spec"] | {"minReplicas": 3}})
        for number, bounds in (
            (3, {}),
            (7, {"minReplicas": 7}),
            (2, {"minReplicas": 1, "maxReplicas": 2}),
            (5, {"minReplicas": 5, "maxReplicas": 20}),
        ):
            world.cluster.rest.patch(f"{path}/orders", {"spec": bounds})
            until_workers(world, number)
            assert reported(world, "AbleToScale")["status"] == "True"
            world.until("ScalingActive", "True", "ExternalAutoscaler")
            world.event("ScaledDown" if number == 2 else "ScaledUp", f"→ {number} worker")
        world.nudge()
        until_workers(world, 5)
        world.kubectl("scale", "dq/orders", "--replicas=8")
        until_workers(world, 8)
        scale = world.cluster.rest.get(f"{world.path('delayqueues', 'orders')}/scale")
        assert len(world.items("pods", labelSelector=scale["status"]["selector"])) == 8
        assert managers(world.get("deployments", "orders-worker"), "spec", "replicas") == {"delayq-scaler"}
        world.edit(suspend=True, suspendPolicy="Drain")
        eventually(lambda: workers(world) == 0, what="held")
        world.edit(suspend=False)
        until_workers(world, 8)
    assert asked == [1, 3, 7, 2, 5, 8]
    assert made == [*asked, 0, 8]


# --- Where every number begins.

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
    reported = {name: world.queue(name)["status"]["desiredReplicas"] for name in STARTS}
    assert reported == {name: number for name, (_, number) in STARTS.items()}
