"""What rolls pods and what does not: a new ReplicaSet for each change of what they read, none for one of scale."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.world import World, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.operator import Operator

pytestmark = pytest.mark.xdist_group("rollout")

PASSWORD: Final = "correct-horse-battery-staple"  # noqa: S105  of nothing
REDIS: Final = {"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "login"}}}
TEMPLATE: Final = {
    "spec": {"containers": [{"name": "worker", "envFrom": [{"configMapRef": {"name": "shop"}}]}]}
}
AUTOSCALING: Final = {"minReplicas": 1, "maxReplicas": 5}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, crd: str) -> Iterator[Operator]:  # noqa: ARG001  the CRD is installed
    with serving(cluster) as operator:
        yield operator


@pytest.fixture
def world(cluster: Cluster, operator: Operator, namespace: str) -> World:
    """A DelayQueue that reads a Secret and a ConfigMap."""
    world = World(cluster, operator, namespace)
    world.make("secrets", secret(PASSWORD))
    world.make("configmaps", {"metadata": {"name": "shop"}, "data": {"REGION": "eu"}})
    return world


def secret(password: str) -> dict[str, Any]:
    return {"metadata": {"name": "login"}, "stringData": {"password": password}}


def revisions(world: World, component: str = "worker") -> int:
    """ReplicaSets made so far: one for each pod template."""
    selector = f"{names.QUEUE_LABEL}=orders,{names.COMPONENT_LABEL}={component}"
    return len(world.items("replicasets", labelSelector=selector))


def start(world: World, **spec: Any) -> None:  # noqa: ANN401  parts of a document
    least: dict[str, Any] = {"redis": REDIS, "worker": {"replicas": 2, "template": TEMPLATE}}
    world.start(**least | spec)
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)


CHANGES: Final[dict[str, tuple[dict[str, Any], str, tuple[int, int]]]] = {
    "handler": (
        {"handler": {"python": {"callable": "shop.orders:other"}}},
        "spec.handler changed",
        (1, 2),
    ),
    "redis": ({"redis": {"database": 3}}, "spec.redis changed", (2, 2)),
    "shards": ({"shards": 4}, "spec.shards changed", (2, 1)),
    "rate": ({"limits": {"ratePerSecond": 50}}, "spec.limits added", (2, 2)),
    "delivery": ({"delivery": {"maxAttempts": 7}}, "spec.delivery changed", (2, 2)),
    "concurrency": ({"worker": {"concurrency": 7}}, "spec.worker changed", (1, 2)),
    "image": ({"worker": {"image": "shop/worker:8"}}, "image changed from delayq-worker:test to", (1, 2)),
    "template": (
        {"worker": {"template": {"metadata": {"labels": {"team": "shop"}}}}},
        "pod template changed",
        (1, 2),
    ),
    "hold": ({"stopPolicy": "Hold"}, "spec.stopPolicy changed", (1, 2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_pods_read_replaces_them_once(world: World, change: str) -> None:
    """Exactly one new ReplicaSet for each component that reads what changed, and an event that says what it was."""
    start(world)
    spec, reason, expected = CHANGES[change]
    world.edit(**spec)
    world.event("RolledOut", f"orders-{'worker' if expected[1] > 1 else 'scanner'}", reason)
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == expected
    rolled = len(world.events("RolledOut"))
    assert rolled == sum(expected) - 2
    assert world.events("Repaired") == []


def test_a_rotated_secret_replaces_those_once_who_have_it_in_their_environment(world: World) -> None:
    """Touching its labels replaces nobody."""
    world.make("secrets", {"metadata": {"name": "keys"}, "stringData": {"KEY": "1"}})
    env = [{"secretRef": {"name": "keys"}}]
    template = {"spec": {"containers": [{"name": "worker", "envFrom": env}]}}
    start(world, worker={"template": template})
    world.patch("secrets", "keys", {"metadata": {"labels": {"rotated": "no"}}})
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)
    world.patch("secrets", "keys", {"stringData": {"KEY": "2"}})
    world.event("RolledOut", "orders-worker", "Secret keys changed")
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 2)


def test_a_rotated_password_of_redis_replaces_nobody(world: World) -> None:
    """It is read at each connect, from the file that the kubelet brings."""
    start(world)
    world.patch("secrets", "login", {"stringData": {"password": f"{PASSWORD}-2"}})
    world.nudge()
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)
    assert world.events("RolledOut") == []


def test_a_changed_configmap_replaces_who_reads_it(world: World) -> None:
    """A ConfigMap in envFrom of the worker's template rolls workers, and no scanner."""
    start(world)
    world.patch("configmaps", "shop", {"data": {"REGION": "us"}})
    world.event("RolledOut", "orders-worker", "ConfigMap shop changed")
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 2)


def test_a_secret_that_goes_and_comes_back_replaces_nothing(world: World) -> None:
    """Pods that run have read it: nothing happens when it is deleted, nor when it is made again as it was."""
    start(world)
    world.delete("secrets", "login")
    told = world.until("Accepted", "False", "ReferenceNotFound")["message"]
    assert f"Secret login not found in namespace {world.namespace}" in told
    world.event("ReferenceNotFound", "Secret login")
    world.make("secrets", secret(PASSWORD))
    world.until("Accepted", "True")
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)


def test_a_missing_secret_is_told_until_it_is_there(
    cluster: Cluster, operator: Operator, namespace: str
) -> None:
    """A DelayQueue whose Secret does not exist says so; once it does, all is well without another edit."""
    world = World(cluster, operator, namespace)
    world.create(redis=REDIS)
    assert "Secret login" in world.until("Accepted", "False", "ReferenceNotFound")["message"]
    assert "Secret login" in world.until("Ready", "False", "ReferenceNotFound")["message"]
    world.make("secrets", secret(PASSWORD))
    world.until("Accepted", "True")


SCALINGS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "worker.replicas": ({}, {"worker": {"replicas": 5}}),
    "scanner.replicas": ({}, {"scanner": {"replicas": 3}}),
    "bounds": (
        {"worker": {"template": TEMPLATE}, "autoscaling": AUTOSCALING},
        {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}},
    ),
    "objective": ({}, {"objective": {"latenessMilliseconds": 77000}}),
    "drain": ({}, {"stopPolicy": "HoldAndDrain"}),
    "reaper": ({}, {"reaper": {"schedule": "*/7 * * * *"}}),
    "budget": ({}, {"podDisruptionBudget": {"maxUnavailable": 3}}),
}


@pytest.mark.parametrize("change", SCALINGS)
def test_a_change_of_scale_replaces_no_pod(world: World, change: str) -> None:
    """How many pods there are, and what they are judged by, is nothing that pods read."""
    before, after = SCALINGS[change]
    start(world, **before)
    world.edit(**after)
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)
    assert world.events("RolledOut") == []


def test_the_scale_subresource_replaces_no_pod(world: World) -> None:
    """kubectl scale of the DelayQueue changes the number of workers and nothing else."""
    start(world, worker={"replicas": 1, "template": TEMPLATE})
    world.kubectl("scale", "delayqueue/orders", "--replicas=4")
    eventually(lambda: world.get("deployments", "orders-worker")["spec"]["replicas"] == 4)
    world.settle()
    assert (revisions(world, "scanner"), revisions(world)) == (1, 1)


def test_no_secret_shows_anywhere(world: World, operator: Operator) -> None:
    """Nothing of a Secret's content is in children, events, status or the operator's log, plain or encoded."""
    env = [{"secretRef": {"name": "login"}}]
    template = {"spec": {"containers": [{"name": "worker", "envFrom": env}]}}
    start(world, worker={"template": template})
    world.patch("secrets", "login", {"stringData": {"password": f"{PASSWORD}-2"}})
    world.event("RolledOut", "Secret login changed")
    world.settle()
    seen = "".join(
        world.kubectl("get", kind, "-o", "yaml")
        for kind in ("delayqueues", "deployments", "configmaps", "cronjobs", "events", "replicasets")
    )
    for password in (PASSWORD, f"{PASSWORD}-2"):
        for text in (password, base64.b64encode(password.encode()).decode()[:-4]):
            assert text not in seen
            assert text not in operator.process.output
