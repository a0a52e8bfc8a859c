"""The Secret of an HTTP service: mounted by the operator, which never reads it, and awaited by workers and scanners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import SyncClient
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition, queue
from tests.process.receiver import receiving

if TYPE_CHECKING:
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.world import World
    from tests.servers import RedisServer

TOKEN = "canary-4d1f7a"  # noqa: S105 -- of no service
REF = {"name": "shop-api", "key": "token", "scheme": "Bearer"}


def test_a_worker_waits_for_a_key_that_the_operator_never_reads(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """First the Secret is missing, then its keys; the processes that wait go on by themselves.

    The queue is ready without the key of its check, which is not called before a lease expires.
    """
    mark, standalone = world.enqueue(), {"host": "127.0.0.1", "port": redis.port}
    with receiving(204) as (url, seen), SyncClient(redis.url, queue="orders") as client:
        handler = {"http": {"url": url, "secretHeaders": {"Authorization": REF}}}
        check = {"http": {"url": url, "secretHeaders": {"Authorization": REF | {"key": "check"}}}}
        body = queue(handler=handler, recovery={"check": check}, redis={"standalone": standalone})
        world.make(names.PLURAL, body)
        told = world.until("Accepted", "False", "ReferenceNotFound")["message"]
        assert "Secret shop-api not found" in told
        client.schedule({"n": 1}, delay_ms=0, task_id="early")
        world.make("secrets", {"metadata": {"name": "shop-api"}, "stringData": {"other": TOKEN}})
        world.until("Accepted", "True")
        world.until("Ready", "False", "WorkersNotReady", timeout_s=40)
        told = "Workers wait for key token of Secret shop-api."
        eventually(lambda: told in condition(world.queue(), "Ready")["message"], timeout_s=40)
        pods = process_node.pods.values()
        [worker] = [pod for pod in pods if "-worker-" in pod.seen["metadata"]["name"]]
        eventually(lambda: "key token of Secret shop-api" in (worker.dir / "worker.log").read_text())
        assert seen == []
        world.patch("secrets", "shop-api", {"stringData": {"token": f"{TOKEN}\n"}})
        world.until("Ready", "True", timeout_s=40)
        eventually(lambda: seen, what="early is delivered")
        told = world.until("Degraded", "True", "CheckUnusable")["message"]
        assert "spec.recovery.check of queue orders: they wait for key check of Secret shop-api." in told
        world.event("CheckUnusable", "key check of Secret shop-api")
        world.patch("secrets", "shop-api", {"stringData": {"check": TOKEN}})
        world.until("Degraded", "False", "AsExpected", timeout_s=40)
    assert ("Authorization", f"Bearer {TOKEN}") in seen[0][0]
    assert worker.containers[0].restarts == 0
    read = [
        event
        for event in world.cluster.audit_events(mark)
        if event.user.endswith(":delayq-operator") and (event.resource, event.name) == ("secrets", "shop-api")
    ]
    assert read == []
    assert TOKEN not in str(world.queue())
