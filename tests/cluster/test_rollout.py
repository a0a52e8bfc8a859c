"""What rolls pods and what does not: a new ReplicaSet for each change of what they read, none for one of scale."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.operator import Operator
    from tests.cluster.world import World

pytestmark = pytest.mark.xdist_group("rollout")

PASSWORD: Final = "correct-horse-battery-staple"  # noqa: S105  of nothing
REDIS: Final = {"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "login"}}}
TEMPLATE: Final = {
    "spec": {"containers": [{"name": "worker", "envFrom": [{"configMapRef": {"name": "shop"}}]}]}
}


@pytest.fixture
def shop(world: World) -> World:
    """A namespace with a Secret and a ConfigMap for a DelayQueue to read."""
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


def test_a_change_of_what_pods_read_replaces_them_once(shop: World) -> None:
    """Exactly one new ReplicaSet for each component that reads what changed, and an event that says what it was."""
    world, expected = shop, {"scanner": 1, "worker": 1}
    start(world)
    for change, (spec, reason, (scanner, worker)) in CHANGES.items():
        world.edit(**spec)
        changed = {"scanner": scanner - 1, "worker": worker - 1}
        world.event("RolledOut", f"orders-{'worker' if worker > 1 else 'scanner'}", reason)
        world.settle()
        expected = {each: expected[each] + changed[each] for each in expected}
        assert {each: revisions(world, each) for each in expected} == expected, change
    assert len(world.events("RolledOut")) == sum(expected.values()) - 2
    assert world.events("Repaired") == []


def test_a_rotated_secret_replaces_those_once_who_have_it_in_their_environment(shop: World) -> None:
    """Touching its labels replaces nobody."""
    shop.make("secrets", {"metadata": {"name": "keys"}, "stringData": {"KEY": "1"}})
    env = [{"secretRef": {"name": "keys"}}]
    template = {"spec": {"containers": [{"name": "worker", "envFrom": env}]}}
    start(shop, worker={"template": template})
    shop.patch("secrets", "keys", {"metadata": {"labels": {"rotated": "no"}}})
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 1)
    shop.patch("secrets", "keys", {"stringData": {"KEY": "2"}})
    shop.event("RolledOut", "orders-worker", "Secret keys changed")
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 2)


def test_a_rotated_password_of_redis_replaces_nobody_and_a_changed_configmap_who_reads_it(
    shop: World,
) -> None:
    """A password is read at each connect, from the file that the kubelet brings; envFrom only when a process starts."""
    start(shop)
    shop.patch("secrets", "login", {"stringData": {"password": f"{PASSWORD}-2"}})
    shop.nudge()
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 1)
    assert shop.events("RolledOut") == []
    shop.patch("configmaps", "shop", {"data": {"REGION": "us"}})
    shop.event("RolledOut", "orders-worker", "ConfigMap shop changed")
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 2)


def test_a_secret_that_goes_and_comes_back_replaces_nothing(shop: World) -> None:
    """Pods that run have read it: nothing happens when it is deleted, nor when it is made again as it was."""
    start(shop)
    shop.delete("secrets", "login")
    told = shop.until("Accepted", "False", "ReferenceNotFound")["message"]
    assert f"Secret login not found in namespace {shop.namespace}" in told
    shop.event("ReferenceNotFound", "Secret login")
    shop.make("secrets", secret(PASSWORD))
    shop.until("Accepted", "True")
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 1)


SCALINGS: Final[dict[str, dict[str, Any]]] = {
    "worker.replicas": {"worker": {"replicas": 5}},
    "scanner.replicas": {"scanner": {"replicas": 3}},
    "objective": {"objective": {"latenessMilliseconds": 77000}},
    "reaper": {"reaper": {"schedule": "*/7 * * * *"}},
    "budget": {"podDisruptionBudget": {"maxUnavailable": 3}},
    "drain": {"stopPolicy": "HoldAndDrain"},
    "no drain": {"stopPolicy": "None"},
    "autoscaling": {"autoscaling": {"minReplicas": 1, "maxReplicas": 5}},
    "bounds": {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}},
    "no autoscaling": {"autoscaling": None},
}


def test_a_change_of_scale_replaces_no_pod(shop: World) -> None:
    """How many pods there are, and what they are judged by, is nothing that pods read."""
    start(shop)
    for change, spec in SCALINGS.items():
        shop.edit(**spec)
        shop.settle()
        assert (revisions(shop, "scanner"), revisions(shop)) == (1, 1), change
    shop.kubectl("scale", "delayqueue/orders", "--replicas=4")
    eventually(lambda: shop.get("deployments", "orders-worker")["spec"]["replicas"] == 4)
    shop.settle()
    assert (revisions(shop, "scanner"), revisions(shop)) == (1, 1)
    assert shop.events("RolledOut") == []


def test_no_secret_shows_anywhere(shop: World, operator: Operator) -> None:
    """Nothing of a Secret's content is in children, events, status or the operator's log, plain or encoded."""
    world = shop
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
