"""With autoscaling.mode External a real HorizontalPodAutoscaler scales workers, and the operator does as it says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import yaml
from delayq import SyncClient
from delayq.contract import parse

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.waiting import eventually
from tests.cluster.metrics_api import MetricsApi, work
from tests.cluster.operator import queue_with_code
from tests.cluster.world import World, managers

if TYPE_CHECKING:
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.harness.rest import Object
    from tests.servers import RedisServer


MANIFEST: Final = ROOT / "examples" / "hpa" / "hpa.yaml"
EXTERNAL: Final = {"mode": "External", "maxReplicas": 20}
PER_WORKER: Final = 4  # as in the manifest
HPAS: Final = "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
HANDLER: Final = """
import asyncio, os
from redis.asyncio import Redis
ledger = Redis.from_url(os.environ["LEDGER"])
async def handle(task):
    while not await ledger.exists("open"):
        await asyncio.sleep(0.1)
    await ledger.rpush("ledger", task.id)
"""


class Dial:
    """A metric that the test sets; None: nobody knows."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def read(self, _namespace: str, _labels: dict[str, str]) -> int:
        assert self.number is not None
        return self.number


def hpa(world: World, **behavior: dict[str, Any]) -> None:
    """Apply the manifest of the documentation; `behavior` may be quicker than a user would want it."""
    body = yaml.safe_load(MANIFEST.read_text())
    body["spec"]["behavior"] |= behavior
    world.cluster.rest.create(HPAS.format(namespace=world.namespace), body)


AT_ONCE: Final[dict[str, dict[str, Any]]] = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}
"""Without limits to the speed, which by default are 4 pods, or twice as many, in 15 s."""


def told(world: World, kind: str) -> Object:
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
    """Until the HPA, the DelayQueue, the Deployment and the pods agree."""

    def agree() -> bool:
        body = world.queue()
        found = {
            "spec": body["spec"]["worker"].get("replicas"),
            "deployment": workers(world),
            "desired": body["status"]["desiredReplicas"],
            "pods": body["status"]["replicas"],
        }
        assert set(found.values()) == {number}, (found, _state(world))
        return True

    eventually(agree, timeout_s=60, what=f"{number} workers")


def _state(world: World) -> object:
    return world.cluster.rest.get(f"{HPAS.format(namespace=world.namespace)}/orders").get("status")


def test_an_hpa_says_how_many_workers_there_are(world: World, control_plane: ControlPlane) -> None:
    """Up and down, from a spec without a number; nobody writes back what the HPA wrote.

    Without its metric nothing is scaled down; kubectl scale works, and the HPA goes on from there.
    """
    dial = Dial(1)
    with (
        MetricsApi(control_plane, world.namespace, dial.read) as api,
        world.numbers("delayqueues", "orders", "spec", "worker", "replicas") as asked,
        world.numbers("deployments", "orders-worker", "spec", "replicas") as made,
    ):
        world.start(autoscaling=EXTERNAL)
        hpa(world, **AT_ONCE)
        for number, tasks in ((3, 3 * PER_WORKER), (7, 7 * PER_WORKER), (1, 0), (5, 5 * PER_WORKER)):
            dial.number = tasks
            until_workers(world, number)
            assert told(world, "AbleToScale")["status"] == "True"
            assert told(world, "ScalingActive")["status"] == "True"
            world.until("ScalingActive", "True", "ExternalAutoscaler")
            world.event("ScaledDown" if number == 1 else "ScaledUp", f"→ {number} worker")
        dial.number = None
        eventually(lambda: told(world, "ScalingActive")["reason"] == "FailedGetExternalMetric")
        assert set(api.asked) == {"delayq_work"}
        for _ in range(3):
            world.nudge()
        until_workers(world, 5)
        world.kubectl("scale", "dq/orders", "--replicas=8")
        until_workers(world, 8)
        dial.number = 6 * PER_WORKER
        until_workers(world, 6)
        assert managers(world.queue(), "spec", "worker", "replicas") == {"kube-controller-manager"}
        assert managers(world.get("deployments", "orders-worker"), "spec", "replicas") == {"delayq-scaler"}
        world.edit(suspend=True, suspendPolicy="Drain")
        eventually(lambda: workers(world) == 0, what="held")
        world.edit(suspend=False)
        until_workers(world, 6)
    assert asked == [1, 3, 7, 1, 5, 8, 6]
    assert made == [*asked, 0, 6]


# --- The whole loop: tasks, scanner, metric, HPA, DelayQueue, operator, pods.


def test_what_falls_due_brings_workers_and_takes_them_away(
    world: World, control_plane: ControlPlane, process_node: ProcessNode, redis: RedisServer
) -> None:
    """Twelve tasks that cannot be done yet make three workers; once they are done, one is left."""
    worker = {"concurrency": 2, "drainTimeoutSeconds": 5}
    document = queue_with_code(
        *(world.cluster, world.namespace, redis, HANDLER),
        scanner={"replicas": 1},
        worker=worker,
        autoscaling=EXTERNAL,
    )
    with MetricsApi(control_plane, world.namespace, partial(work, world.cluster)) as api:
        world.create(**document["spec"])
        hpa(world, **AT_ONCE)
        world.until("Ready", "True", timeout_s=60)
        eventually(lambda: told(world, "ScalingActive")["status"] == "True", timeout_s=30, what=api.error)
        with SyncClient(redis.url, queue=parse(document).queue) as client, redis.client() as ledger:
            for _ in range(3 * PER_WORKER):
                client.schedule({}, delay_ms=1_000)
            until_workers(world, 3)
            eventually(lambda: world.queue()["status"]["readyReplicas"] == 3, timeout_s=60)
            ledger.set("open", 1)
            until_workers(world, 1)
            assert ledger.llen("ledger") == 3 * PER_WORKER
        eventually(lambda: len(_running(process_node)) == 1, what="one worker runs")


def _running(node: ProcessNode) -> list[str]:
    return [
        pod.seen["metadata"]["name"]
        for pod in node.pods.values()
        if "-worker-" in pod.seen["metadata"]["name"] and pod.is_alive()
    ]
