"""What an earlier DelayQueue of the same name left behind, and what only looks as if it had."""

from __future__ import annotations

from functools import partial
from typing import Final

from delayq_operator.base import names

from tests.cluster.harness.resources import delete_namespace, make_namespace
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition
from tests.cluster.world import World

DELETE: Final = {"deletionPolicy": "Delete"}
JOB: Final = ("jobs", "orders-erase")
WORKER: Final = ("deployments", "orders-worker")


def told(world: World, reason: str, *words: str, name: str = "orders") -> str:
    """What Degraded says, once it has this reason; not waiting for its generation, for nothing edits the spec."""

    def look() -> str:
        entry = condition(world.queue(name), "Degraded")
        assert entry["reason"] == reason, entry
        assert [word for word in words if word not in entry["message"]] == [], entry
        return str(entry["message"])

    return eventually(look, what=f"Degraded is {reason}")


def test_tasks_that_two_delayqueues_share_are_not_erased_with_one(world: World) -> None:
    """Deleting one of them waits, and says for whom; when the other is gone, its tasks go.

    Until somebody takes the finalizer away, and the Job with it.
    """
    world.create()
    world.create("orders2", queueName="orders", **DELETE)
    told(world, "QueueConflict", f"{world.namespace}/orders ", name="orders2")
    told(world, "QueueConflict", f"{world.namespace}/orders2")
    world.delete(names.PLURAL, "orders2")
    told(world, "EraseFailed", f"{world.namespace}/orders", name="orders2")
    assert not world.there("jobs", "orders2-erase")
    world.delete(names.PLURAL, "orders")
    eventually(lambda: world.there("jobs", "orders2-erase"), what="the Job")
    world.patch(names.PLURAL, "orders2", {"metadata": {"finalizers": None}})
    eventually(lambda: not world.there("jobs", "orders2-erase"), what="the Job is gone")


def test_a_stranger_who_names_the_same_redis_neither_sees_nor_holds_a_queue(world: World) -> None:
    """In another namespace only the same credentials prove that tasks are shared; and no name is told, of either."""
    bank = World(world.cluster, world.operator, f"{world.namespace}-bank")
    make_namespace(world.cluster, bank.namespace)
    redis = {"standalone": {"host": "redis.data.svc"}, "auth": {"passwordSecretRef": {"name": "redis"}}}
    for each, password in ((world, "x"), (bank, "guessed")):
        each.make("secrets", {"metadata": {"name": "redis"}, "stringData": {"password": password}})
        each.create(redis=redis, **DELETE)
        each.until("Degraded")
    for each in (world, bank):
        assert condition(each.queue(), "Degraded")["reason"] != "QueueConflict"

    bank.patch("secrets", "redis", {"stringData": {"password": "x"}})
    for each in (world, bank):
        each.edit(scanner={"replicas": 1})
    for each in (world, bank):
        said = told(each, "QueueConflict", "a DelayQueue of another namespace")
        assert f"{bank.namespace}/" not in said
    world.delete(names.PLURAL, "orders")
    assert f"{bank.namespace}/" not in told(world, "EraseFailed", "a DelayQueue of another namespace")
    bank.patch("secrets", "redis", {"stringData": {"password": "other"}})
    eventually(lambda: world.there(*JOB), what="the Job")
    for each in (world, bank):
        each.edit(deletionPolicy="Retain")
    eventually(partial(gone, world), what="it is gone")
    delete_namespace(world.cluster, bank.namespace)


def gone(world: World) -> bool:
    return not world.there(names.PLURAL, "orders")


def test_deletion_takes_nothing_that_only_carries_our_labels(world: World) -> None:
    """A Deployment of somebody else stays, and a Job of that name is not believed to have erased anything."""
    uid = world.create(**DELETE)["metadata"]["uid"]
    eventually(lambda: world.there(*WORKER))
    theirs = world.get(*WORKER)
    metadata = {"name": "theirs", "labels": theirs["metadata"]["labels"]}
    world.make("deployments", {"metadata": metadata, "spec": {**theirs["spec"], "replicas": 0}})
    metadata = {"labels": names.labels("orders", "erase"), "annotations": {names.OWNER_UID: uid}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}
    job = {"metadata": {**metadata, "name": "orders-erase"}, "spec": {"template": {"spec": pod}}}
    world.make("jobs", job)
    world.delete(names.PLURAL, "orders")
    told(world, "EraseFailed", "Job orders-erase exists and is not managed by the operator")
    eventually(lambda: not world.there(*WORKER))
    world.edit(deletionPolicy="Retain")
    eventually(partial(gone, world), what="it is gone")
    assert world.there(*JOB)
    assert world.there("deployments", "theirs")
