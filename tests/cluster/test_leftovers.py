"""What an earlier DelayQueue of the same name left behind, and what only looks as if it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names

from tests.cluster.harness.resources import found, make_namespace
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import QUEUES, Operator, condition, install_rights, queue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster


@pytest.fixture
def rights(cluster: Cluster, crd: str, namespace: str) -> Path:  # noqa: ARG001  the CRD is installed
    return install_rights(cluster, namespace)


class Shop:
    """Paths and objects of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.rest = cluster.rest
        self.cluster = cluster
        self.queues = QUEUES.format(namespace=namespace)
        self.path = f"{self.queues}/orders"
        self.core = f"/api/v1/namespaces/{namespace}"
        self.worker = f"/apis/apps/v1/namespaces/{namespace}/deployments/orders-worker"
        self.job = f"/apis/batch/v1/namespaces/{namespace}/jobs/orders-erase"

    def create(self, **spec: Any) -> str:  # noqa: ANN401  parts of a spec
        return str(self.rest.create(self.queues, queue(**spec))["metadata"]["uid"])

    def until(self, path: str, *, there: bool = True) -> None:
        eventually(
            lambda: found(self.cluster, path) is there, what=f"{path} is {'there' if there else 'gone'}"
        )

    def owner(self, path: str) -> str:
        references = self.rest.get(path)["metadata"].get("ownerReferences") or [{"uid": ""}]
        return str(references[0]["uid"])


@pytest.fixture
def shop(cluster: Cluster, namespace: str) -> Shop:
    return Shop(cluster, namespace)


def test_an_erasing_whose_delayqueue_is_there_again_is_stopped(
    rights: Path, namespace: str, shop: Shop
) -> None:
    """A finalizer taken away by hand leaves the Job that erases: it must not erase the tasks of the next DelayQueue."""
    operator = Operator.start(rights, namespace).wait_ready()
    shop.create(deletionPolicy="Delete")
    eventually(lambda: names.ERASE_FINALIZER in shop.rest.get(shop.path)["metadata"].get("finalizers", ()))
    shop.rest.delete(shop.path)
    shop.until(shop.job)
    operator.process.kill()
    shop.rest.patch(shop.path, {"metadata": {"finalizers": None}})
    shop.until(shop.path, there=False)
    shop.create()
    operator = Operator.start(rights, namespace).wait_ready()
    shop.until(shop.job, there=False)
    shop.until(shop.worker)
    operator.process.stop()


def test_an_erasing_that_somebody_breaks_off_is_stopped(rights: Path, namespace: str, shop: Shop) -> None:
    """With an operator there, taking the finalizer away takes the Job away too."""
    operator = Operator.start(rights, namespace).wait_ready()
    shop.create(deletionPolicy="Delete")
    eventually(lambda: names.ERASE_FINALIZER in shop.rest.get(shop.path)["metadata"].get("finalizers", ()))
    shop.rest.delete(shop.path)
    shop.until(shop.job)
    shop.rest.patch(shop.path, {"metadata": {"finalizers": None}})
    shop.until(shop.job, there=False)
    operator.process.stop()


def test_orphans_are_taken_back(rights: Path, namespace: str, shop: Shop) -> None:
    """Children left by `kubectl delete --cascade=orphan` belong to the next DelayQueue of that name."""
    operator = Operator.start(rights, namespace).wait_ready()
    first = shop.create()
    eventually(lambda: found(shop.cluster, shop.worker) and shop.owner(shop.worker) == first)
    operator.process.stop()
    shop.rest.delete(shop.path, {"propagationPolicy": "Orphan"})
    shop.until(shop.path, there=False)
    assert not shop.owner(shop.worker)
    second = shop.create()
    operator = Operator.start(rights, namespace).wait_ready()
    eventually(lambda: shop.owner(shop.worker) == second, what="the worker has a new owner")
    assert condition(shop.rest.get(shop.path), "Degraded")["reason"] != "NameConflict"
    operator.process.stop()


def test_labels_alone_make_nothing_ours(rights: Path, namespace: str, shop: Shop) -> None:
    """Somebody's ConfigMap of that name, with our labels on it, is not touched."""
    metadata = {"name": "orders-config", "labels": names.labels("orders", "config")}
    shop.rest.create(f"{shop.core}/configmaps", {"metadata": metadata, "data": {"theirs": "1"}})
    operator = Operator.start(rights, namespace).wait_ready()
    shop.create()

    def told() -> bool:
        assert condition(shop.rest.get(shop.path), "Degraded")["reason"] == "NameConflict"
        return True

    eventually(told)
    there = shop.rest.get(f"{shop.core}/configmaps/orders-config")
    assert there["data"] == {"theirs": "1"}
    assert "ownerReferences" not in there["metadata"]
    operator.process.stop()


def test_tasks_that_two_delayqueues_share_are_not_erased_with_one(
    rights: Path, namespace: str, shop: Shop
) -> None:
    """Deleting one of them waits, and says for whom; when the other is gone, its tasks go."""
    operator = Operator.start(rights, namespace).wait_ready()
    shop.create()
    other = queue("orders2", queueName="orders", deletionPolicy="Delete")
    shop.rest.create(shop.queues, other)
    path, job = f"{shop.queues}/orders2", shop.job.replace("orders-erase", "orders2-erase")

    def degraded(where: str, reason: str, words: str) -> None:
        def told() -> bool:
            entry = condition(shop.rest.get(where), "Degraded")
            assert entry["reason"] == reason
            assert words in entry["message"]
            return True

        eventually(told)

    degraded(path, "QueueConflict", f"{namespace}/orders ")
    degraded(shop.path, "QueueConflict", f"{namespace}/orders2")
    shop.rest.delete(path)
    degraded(path, "EraseFailed", f"{namespace}/orders")
    assert not found(shop.cluster, job)
    shop.rest.delete(shop.path)
    shop.until(job)
    operator.process.stop()


def test_a_stranger_who_names_the_same_redis_neither_sees_nor_holds_a_queue(
    cluster: Cluster, namespace: str, shop: Shop, crd: str
) -> None:
    """In another namespace only the same credentials prove that tasks are shared; and no name is told, of either."""
    assert crd
    bank = Shop(cluster, f"{namespace}-bank")
    make_namespace(cluster, f"{namespace}-bank")
    rights = install_rights(cluster, namespace, also=(f"{namespace}-bank",))
    operator = Operator.start(rights, namespace, f"--namespace={namespace}-bank").wait_ready()
    redis = {"standalone": {"host": "redis.data.svc"}, "auth": {"passwordSecretRef": {"name": "redis"}}}
    for each, password in ((shop, "x"), (bank, "guessed")):
        secret = {"metadata": {"name": "redis"}, "stringData": {"password": password}}
        each.rest.create(f"{each.core}/secrets", secret)
        each.create(redis=redis, deletionPolicy="Delete")
        eventually(lambda each=each: condition(each.rest.get(each.path), "Degraded")["status"] != "")  # type: ignore[misc]
    for each in (shop, bank):
        assert condition(each.rest.get(each.path), "Degraded")["reason"] != "QueueConflict"

    bank.rest.patch(f"{bank.core}/secrets/redis", {"stringData": {"password": "x"}})
    shop.rest.patch(shop.path, {"spec": {"scanner": {"replicas": 1}}})
    bank.rest.patch(bank.path, {"spec": {"scanner": {"replicas": 1}}})

    def told(each: Shop, reason: str) -> bool:
        entry = condition(each.rest.get(each.path), "Degraded")
        assert entry["reason"] == reason
        assert "a DelayQueue of another namespace" in entry["message"]
        assert f"{namespace}-bank/" not in entry["message"]
        return True

    eventually(lambda: told(shop, "QueueConflict") and told(bank, "QueueConflict"))
    shop.rest.delete(shop.path)
    eventually(lambda: told(shop, "EraseFailed"))
    bank.rest.patch(f"{bank.core}/secrets/redis", {"stringData": {"password": "other"}})
    shop.until(shop.job)
    for each in (shop, bank):
        each.rest.patch(each.path, {"spec": {"deletionPolicy": "Retain"}})
    shop.until(shop.path, there=False)
    operator.process.stop()
    cluster.kubectl("delete", "namespace", f"{namespace}-bank", "--wait=false")


def test_deletion_takes_nothing_that_only_carries_our_labels(
    rights: Path, namespace: str, shop: Shop
) -> None:
    """A Deployment of somebody else stays, and a Job of that name is not believed to have erased anything."""
    operator = Operator.start(rights, namespace).wait_ready()
    uid = shop.create(deletionPolicy="Delete")
    shop.until(shop.worker)
    theirs = shop.rest.get(shop.worker)
    metadata = {"name": "theirs", "labels": theirs["metadata"]["labels"]}
    spec = {**theirs["spec"], "replicas": 0}
    shop.rest.create(shop.worker.rpartition("/")[0], {"metadata": metadata, "spec": spec})
    metadata = {"labels": names.labels("orders", "erase"), "annotations": {names.OWNER_UID: uid}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}
    job = {"metadata": {**metadata, "name": "orders-erase"}, "spec": {"template": {"spec": pod}}}
    shop.rest.create(shop.job.rpartition("/")[0], job)
    shop.rest.delete(shop.path)

    def told() -> bool:
        entry = condition(shop.rest.get(shop.path), "Degraded")
        return (
            entry["reason"] == "EraseFailed"
            and "Job orders-erase exists and is not managed by the operator" in entry["message"]
        )

    eventually(told)
    shop.until(shop.worker, there=False)
    shop.rest.patch(shop.path, {"spec": {"deletionPolicy": "Retain"}})
    shop.until(shop.path, there=False)
    assert found(shop.cluster, shop.job)
    assert found(shop.cluster, shop.worker.replace("orders-worker", "theirs"))
    operator.process.stop()
