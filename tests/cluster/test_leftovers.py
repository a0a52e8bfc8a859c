"""What an earlier DelayQueue of the same name left behind, and what only looks as if it had."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq import SyncClient
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition
from tests.servers import PASSWORD, USER

if TYPE_CHECKING:
    from tests.cluster.world import World
    from tests.servers import RedisServer

DELETE: Final = {"deletionPolicy": "Delete"}
JOB: Final = ("jobs", "orders-erase")
WORKER: Final = ("deployments", "orders-worker")


def reported(world: World, reason: str, *words: str, name: str = "orders") -> str:
    """What Degraded says, once it has this reason; not waiting for its generation, for nothing edits the spec."""

    def look() -> str:
        entry = condition(world.queue(name), "Degraded")
        assert entry["reason"] == reason, entry
        assert [word for word in words if word not in entry["message"]] == [], entry
        return str(entry["message"])

    return eventually(look, timeout_s=40, what=f"Degraded is {reason}")


def shared(world: World, redis: RedisServer, **spec: object) -> dict[str, Any]:
    """The spec of a DelayQueue without workers on this Redis, and the Secret that it takes."""
    if not world.there("secrets", "login"):
        world.make(
            "secrets", {"metadata": {"name": "login"}, "stringData": {"username": USER, "password": PASSWORD}}
        )
    auth = {"usernameSecretRef": {"name": "login"}, "passwordSecretRef": {"name": "login"}}
    where = {"standalone": {"host": "127.0.0.1", "port": redis.port}, "auth": auth}
    return {"redis": where, "worker": {"replicas": 0}, "scanner": {"replicas": 1}, **spec}


@pytest.mark.usefixtures("process_node")
def test_tasks_that_two_delayqueues_share_are_not_erased_with_one(world: World, redis: RedisServer) -> None:
    """Deleting one of them waits, and says for whom; when the other is gone, its tasks go."""
    world.create(**shared(world, redis))
    world.create("orders2", **shared(world, redis, queueName="orders", **DELETE))
    reported(world, "QueueConflict", f"{world.namespace}/orders ", name="orders2")
    reported(world, "QueueConflict", f"{world.namespace}/orders2")
    with SyncClient(redis.url, queue="orders") as client:
        client.schedule(1, delay_ms=0, task_id="shared")
        world.delete(names.PLURAL, "orders2")
        reported(world, "EraseFailed", f"{world.namespace}/orders", name="orders2")
        assert not world.there("jobs", "orders2-erase")
        assert client.get("shared") is not None
        world.delete(names.PLURAL, "orders")
        eventually(lambda: not world.there(names.PLURAL, "orders2"), timeout_s=90, what="orders2 is erased")
        assert client.get("shared") is None


def gone(world: World) -> bool:
    return not world.there(names.PLURAL, "orders")


def test_deletion_takes_nothing_that_only_carries_our_labels(world: World) -> None:
    """A foreign Deployment stays, and a foreign Job of that name does not count as an erasure."""
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
    reported(world, "EraseFailed", "Job orders-erase exists and is not managed by the operator")
    eventually(lambda: not world.there(*WORKER))
    world.edit(deletionPolicy="Retain")
    eventually(partial(gone, world), what="it is gone")
    assert world.there(*JOB)
    assert world.there("deployments", "theirs")
