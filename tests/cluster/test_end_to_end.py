"""A DelayQueue is applied, and tasks run: real scanners, workers and reapers, started from the pods that came of it.

The pods are processes of this host (harness/node.py): what is proved is that the operator's Deployments, CronJobs, Jobs
and ConfigMaps hold together with the processes; not images or security contexts.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from delayq import SyncClient
from delayq.contract import parse

from tests.cluster.harness.resources import found
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import QUEUES, condition, queue_with_code

if TYPE_CHECKING:
    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.node import ProcessNode
    from tests.servers import RedisServer

HANDLER = """
import os
from redis.asyncio import Redis
ledger = Redis.from_url(os.environ["LEDGER"])
async def handle(task):
    await ledger.rpush("ledger", task.id)
"""
TASKS = 300


class Shop:
    """One DelayQueue on a real Redis, whose handler writes a ledger."""

    def __init__(
        self, cluster: ControlPlane, namespace: str, redis: RedisServer, handler: str = HANDLER
    ) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.path = f"{QUEUES.format(namespace=namespace)}/orders"
        self.document = queue_with_code(cluster, namespace, redis, handler, worker={"replicas": 2})

    def apply(self, **spec: Any) -> None:  # noqa: ANN401  parts of a document
        body = {**self.document, "spec": self.document["spec"] | spec}
        self.cluster.rest.create(self.path.rpartition("/")[0], body)

    @property
    def body(self) -> dict[str, Any]:
        return self.cluster.rest.get(self.path)

    def until(self, kind: str, status: str, *, timeout_s: float = 40) -> dict[str, Any]:
        def there() -> dict[str, Any]:
            body = self.body
            assert condition(body, kind)["status"] == status, condition(body, kind)
            return body

        return eventually(there, timeout_s=timeout_s, what=f"{kind} is {status}")

    def client(self, redis: RedisServer) -> SyncClient:
        return SyncClient(redis.url, queue=parse(self.document).queue)


@pytest.fixture
def shop(cluster: ControlPlane, namespace: str, redis: RedisServer) -> Shop:
    return Shop(cluster, namespace, redis)


@pytest.mark.usefixtures("operator")
def test_tasks_run_when_they_fall_due(process_node: ProcessNode, shop: Shop, redis: RedisServer) -> None:
    """kubectl apply, wait for Ready, schedule: every task is handled once, also when pods are killed meanwhile."""
    shop.apply()
    shop.until("Ready", "True")
    with shop.client(redis) as client:
        ids = {
            client.schedule({"n": number}, delay_ms=number * 10, task_id=f"t{number}").id
            for number in range(TASKS)
        }
        workers = [pod for pod in process_node.pods.values() if "-worker-" in pod.seen["metadata"]["name"]]
        victim = workers[0].containers[0].process
        assert victim is not None
        os.kill(victim.pid, signal.SIGKILL)
        with redis.client() as ledger:
            eventually(
                lambda: ids <= set(ledger.lrange("ledger", 0, -1)), timeout_s=60, what="all tasks are handled"
            )
    assert shop.until("BackendAvailable", "True")
    assert condition(shop.until("DurabilityAtRisk", "False"), "Accepted")["status"] == "True"
    eventually(lambda: shop.body["status"]["backlog"]["due"] == 0)


@pytest.mark.usefixtures("operator")
def test_redis_goes_away_for_a_while_and_then_the_queue_with_its_tasks(
    process_node: ProcessNode, shop: Shop, redis: RedisServer
) -> None:
    """Without Redis the DelayQueue says so, and restarts no pod; with Redis back it is ready again.

    With deletionPolicy Delete it goes when its keys are gone from Redis, and nothing else's are. Deleted in the
    foreground, it goes after its children; the Job that erases the tasks is none.
    """
    shop.apply(deletionPolicy="Delete")
    shop.until("Ready", "True")
    redis.kill()
    shop.until("BackendAvailable", "False")
    shop.until("Ready", "False")
    redis.restart()
    shop.until("Ready", "True")
    assert [pod.containers[0].restarts for pod in process_node.pods.values()] == [0] * len(process_node.pods)
    with shop.client(redis) as client:
        for number in range(50):
            client.schedule({"n": number}, delay_ms=3_600_000)
    with redis.client() as connection:
        connection.set("somebody:else", "1")
        assert connection.dbsize() > 1
        shop.cluster.rest.delete(shop.path, {"propagationPolicy": "Foreground"})
        eventually(lambda: not found(shop.cluster, shop.path), timeout_s=60, what="the DelayQueue is gone")
        # What says for a week that the queue was erased is no key of a queue.
        assert [key for key in connection.keys("*") if connection.ttl(key) == -1] == ["somebody:else"]
    jobs = shop.path.partition("/delayqueues")[0].replace("delayq.dev/v1alpha1", "batch/v1") + "/jobs"
    eventually(lambda: not shop.cluster.rest.items(jobs, labelSelector="app.kubernetes.io/component=erase"))
