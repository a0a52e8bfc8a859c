"""What rolls pods and what does not: a new ReplicaSet for each change of what they read, none for one of scale."""

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


def test_a_change_of_what_pods_read_replaces_them_once_and_one_of_scale_none(world: World) -> None:
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


def test_a_rotated_secret_replaces_those_once_who_have_it_in_their_environment_and_shows_nowhere(
    world: World, operator: Operator
) -> None:
    """A password is read at each connect, from the file that the kubelet brings; envFrom only when a process starts."""
    for name in ("login", "keys"):
        world.make("secrets", secret(name, PASSWORD))
    world.make("configmaps", {"metadata": {"name": "shop"}, "data": {"REGION": "eu"}})
    read = [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "shop"}}]
    template = {"spec": {"containers": [{"name": "worker", "envFrom": read}]}}
    world.start(redis=REDIS, worker={"template": template})
    # Nobody is replaced for labels, for the password of Redis, nor for a Secret that goes and comes back.
    world.patch("secrets", "keys", {"metadata": {"labels": {"rotated": "no"}}})
    world.patch("secrets", "login", {"stringData": {"password": f"{PASSWORD}-2"}})
    world.nudge()
    world.delete("secrets", "login")
    told = world.until("Accepted", "False", "ReferenceNotFound")["message"]
    assert f"Secret login not found in namespace {world.namespace}" in told
    world.event("ReferenceNotFound", "Secret login")
    world.make("secrets", secret("login", PASSWORD))
    world.until("Accepted", "True")
    world.settle()
    assert [world.revisions(each) for each in ("scanner", "worker")] == [1, 1]
    assert world.events("RolledOut") == []

    world.patch("secrets", "keys", {"stringData": {"password": f"{PASSWORD}-2"}})
    world.event("RolledOut", "orders-worker", "Secret keys changed")
    world.patch("configmaps", "shop", {"data": {"REGION": "us"}})
    world.event("RolledOut", "orders-worker", "ConfigMap shop changed")
    world.settle()
    assert [world.revisions(each) for each in ("scanner", "worker")] == [1, 3]
    kinds = ("delayqueues", "deployments", "configmaps", "cronjobs", "events", "replicasets")
    seen = json.dumps([world.items(kind) for kind in kinds])
    for password in (PASSWORD, f"{PASSWORD}-2"):
        for text in (password, base64.b64encode(password.encode()).decode()[:-4]):
            assert text not in seen
            assert text not in operator.process.output
