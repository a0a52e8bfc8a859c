"""What rolls pods and what does not: a new ReplicaSet for each change of their inputs, none for one of scale."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.cluster.operator import Operator
    from tests.cluster.world import World


PASSWORD: Final = "correct-horse-battery-staple"  # noqa: S105  of nothing
REDIS: Final = {"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "login"}}}


def secret(name: str, password: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "stringData": {"password": password}}


CHANGES: Final[dict[str, tuple[dict[str, Any], tuple[int, int]]]] = {
    "spec.handler changed": ({"handler": {"python": {"callable": "shop.orders:other"}}}, (0, 1)),
    "spec.redis changed": ({"redis": {"database": 3}}, (1, 1)),
    "spec.shards changed": ({"shards": 4}, (1, 0)),
    "image changed from delayq-worker:test to": ({"worker": {"image": "shop/worker:8"}}, (0, 1)),
}
SCALINGS: Final[tuple[dict[str, Any], ...]] = (
    {"worker": {"replicas": 5}, "scanner": {"replicas": 3}, "objective": {"latenessMilliseconds": 77000}},
    {"reaper": {"schedule": "*/7 * * * *"}, "podDisruptionBudget": {"maxUnavailable": 3}},
    {"suspend": True, "suspendPolicy": "Drain", "autoscaling": {"minReplicas": 1, "maxReplicas": 5}},
    {"suspend": False, "autoscaling": None},
)


def test_a_change_of_the_inputs_of_pods_replaces_them_once_and_one_of_scale_none(world: World) -> None:
    """Exactly one new ReplicaSet for each component that reads what changed, and an event that says what it was."""
    world.start(worker={"replicas": 2})
    expected = [1, 1]
    for spec in SCALINGS:
        world.edit(**spec)
        world.settle()
        assert [world.revisions(each) for each in ("scanner", "worker")] == expected, spec
    assert world.events("RolledOut") == []
    for reason, (spec, changed) in CHANGES.items():
        world.edit(**spec)
        world.event("RolledOut", f"orders-{'worker' if changed[1] else 'scanner'}", reason)
        world.settle()
        expected = [before + more for before, more in zip(expected, changed, strict=True)]
        assert [world.revisions(each) for each in ("scanner", "worker")] == expected, reason
    assert len(world.events("RolledOut")) == sum(expected) - 2
    assert world.events("Repaired") == []


def test_a_rotated_secret_replaces_no_pods_until_a_restart_is_asked_for_and_shows_nowhere(
    world: World, operator: Operator
) -> None:
    """What `kubectl rollout restart` writes into the pod template stays, also after writes of the operator."""
    for name in ("login", "keys"):
        world.make("secrets", secret(name, PASSWORD))
    world.make("configmaps", {"metadata": {"name": "shop"}, "data": {"REGION": "eu"}})
    read = [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "shop"}}]
    template = {"spec": {"containers": [{"name": "worker", "envFrom": read}]}}
    world.start(redis=REDIS, worker={"template": template})
    for name in ("login", "keys"):
        world.patch("secrets", name, {"stringData": {"password": f"{PASSWORD}-2"}})
    world.patch("configmaps", "shop", {"data": {"REGION": "us"}})
    world.settle()
    assert [world.revisions(each) for each in ("scanner", "worker")] == [1, 1]

    world.kubectl("rollout", "restart", "deployment/orders-worker")
    asked = restarted(world)
    assert asked
    world.settle()
    for spec in ({"worker": {"image": "shop/worker:8"}}, {"shards": 2}):
        world.edit(**spec)
        world.settle()
        assert restarted(world) == asked, spec
    assert [world.revisions(each) for each in ("scanner", "worker")] == [2, 3]
    assert world.events("Repaired") == []
    kinds = ("delayqueues", "deployments", "configmaps", "cronjobs", "events", "replicasets")
    seen = json.dumps([world.items(kind) for kind in kinds])
    for password in (PASSWORD, f"{PASSWORD}-2"):
        for text in (password, base64.b64encode(password.encode()).decode()[:-4]):
            assert text not in seen
            assert text not in operator.process.output


def restarted(world: World) -> str | None:
    """When `kubectl rollout restart` was last called, by the pod template of workers."""
    metadata = world.get("deployments", "orders-worker")["spec"]["template"]["metadata"]
    found: str | None = metadata["annotations"].get("kubectl.kubernetes.io/restartedAt")
    return found
