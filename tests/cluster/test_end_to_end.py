"""A DelayQueue is applied, and tasks run: real scanners, workers and reapers, started from the pods that came of it.

The pods are processes of this host (harness/node.py): what is proved is that the operator's Deployments, CronJobs, Jobs
and ConfigMaps hold together with the processes; not images or security contexts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq import SyncClient
from delayq.contract.outages import remedy
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import queue_with_code

if TYPE_CHECKING:
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.world import World
    from tests.servers import RedisServer

HANDLER = """
import os
from redis.asyncio import Redis
ledger = Redis.from_url(os.environ["LEDGER"])
async def handle(task):
    await ledger.rpush("ledger", task.id)
"""


def document(world: World, redis: RedisServer, handler: str = HANDLER, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    """A DelayQueue on a real Redis, whose handler writes a ledger."""
    return queue_with_code(world.cluster, world.namespace, redis, handler, worker={"replicas": 2}, **spec)


def test_redis_goes_away_for_a_while_and_then_the_queue_with_its_tasks(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """Without Redis the DelayQueue says so, and restarts no pod; with Redis back it is ready again.

    More shards and then fewer take the tasks with them: scanners are replaced, and workers never.

    With deletionPolicy Delete it goes when its keys are gone from Redis, and nothing else's are. While the Job that
    erases them cannot reach Redis, the DelayQueue says so, long before the Job gives up. Deleted in the foreground, it
    goes after its children; the Job is none.
    """
    world.make(names.PLURAL, document(world, redis, deletionPolicy="Delete"))
    world.until("Ready", "True", timeout_s=40)
    world.until("DurabilityMet", "True", "NoRiskFound", timeout_s=40)
    redis.kill()
    world.until("BackendAvailable", "False", timeout_s=40)
    world.until("Ready", "False", timeout_s=40)
    redis.restart()
    world.until("Ready", "True", timeout_s=40)
    assert [pod.containers[0].restarts for pod in process_node.pods.values()] == [0] * len(process_node.pods)
    with SyncClient(redis.url, queue="orders") as client:
        for number in range(50):
            client.schedule({"n": number}, delay_ms=3_600_000)
        for shards in (4, 2):
            world.edit(shards=shards)
            eventually(lambda count=shards: moved(world, count), timeout_s=120, what=f"{shards} shards")  # type: ignore[misc]
            assert "resharding" not in world.queue()["status"]
            assert client.counts().waiting == 50
    assert world.events("ReshardingStarted")
    assert world.events("ReshardingComplete")
    assert (world.revisions("scanner"), world.revisions("worker")) == (3, 1)
    with redis.client() as connection:
        connection.set("foreign:key", "1")
        assert connection.dbsize() > 1
    redis.kill()
    world.cluster.rest.delete(world.path(names.PLURAL, "orders"), {"propagationPolicy": "Foreground"})
    refused = f"Job orders-erase cannot reach Redis, and tries again: {remedy('refused')}. To delete it without erasing"
    world.event("EraseFailed", refused)
    assert world.queue()["status"]["erase"]["message"].startswith(refused)
    redis.restart()
    with redis.client() as connection:
        eventually(lambda: not world.there(names.PLURAL, "orders"), timeout_s=60, what="it is gone")
        # What says for a week that the queue was erased is no key of a queue.
        assert [key for key in connection.keys("*") if connection.ttl(key) == -1] == ["foreign:key"]
    eventually(lambda: not world.items("jobs", labelSelector=f"{names.COMPONENT_LABEL}=erase"))


def moved(world: World, shards: int) -> bool:
    reported = world.until("ReshardingComplete", "True", timeout_s=120)["message"]
    return bool(reported == f"Tasks are in {shards} shards.")
