"""spec.shards changes while tasks wait and run: real scanners move them, workers follow, and the status tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition
from tests.cluster.test_end_to_end import Shop

if TYPE_CHECKING:
    from delayq import SyncClient
    from redis import Redis

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.node import ProcessNode
    from tests.servers import RedisServer

FAR, NEAR = 60, 40  # tasks that wait for an hour, and tasks that fall due while others move
HOUR_MS = 3_600_000
PATIENCE_SECONDS = 120


class Resharded(Shop):
    """A shop whose shards change."""

    def change(self, shards: int) -> None:
        self.cluster.rest.patch(self.path, {"spec": {"shards": shards}})

    def settled(self, shards: int) -> dict[str, Any]:
        def there() -> dict[str, Any]:
            body = self.body
            found = condition(body, "ReshardingComplete")
            assert (found["status"], found["observedGeneration"]) == (
                "True",
                body["metadata"]["generation"],
            ), (
                body["status"].get("resharding"),
                found,
            )
            assert found["message"] == (f"Tasks are in {shards} shards." if shards > 1 else "")
            return body

        return eventually(there, timeout_s=PATIENCE_SECONDS, what=f"tasks are in {shards} shards")

    def revisions(self, component: str) -> int:
        """ReplicaSets made so far: one for each pod template."""
        namespace = self.path.split("/")[-3]
        selector = f"{names.QUEUE_LABEL}=orders,{names.COMPONENT_LABEL}={component}"
        path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
        return len(self.cluster.rest.items(path, labelSelector=selector))

    def told(self, reason: str) -> list[str]:
        """Messages of events."""
        namespace = self.path.split("/")[-3]
        found = self.cluster.rest.items(
            f"/api/v1/namespaces/{namespace}/events",
            fieldSelector=f"involvedObject.name=orders,involvedObject.kind=DelayQueue,reason={reason}",
        )
        return [str(event["message"]) for event in found]


@pytest.fixture
def shop(cluster: ControlPlane, namespace: str, redis: RedisServer) -> Resharded:
    return Resharded(cluster, namespace, redis)


def held(connection: Redis) -> list[int]:
    """How many tasks each shard holds, of the eight that there may have been."""
    return [int(connection.hlen(f"delayq:{{orders:{shard}}}:tasks")) for shard in range(8)]


def schedule(client: SyncClient, name: str, number: int, delay_ms: int) -> set[str]:
    return {
        client.schedule({}, delay_ms=delay_ms + at * 100, task_id=f"{name}-{at}").id for at in range(number)
    }


@pytest.mark.usefixtures("operator", "process_node")
def test_shards_become_more_and_fewer_and_no_task_is_lost_or_late(
    shop: Resharded, redis: RedisServer, process_node: ProcessNode
) -> None:
    """1 → 4 → 2, with tasks that wait and tasks that run meanwhile. Scanners are replaced, and workers never."""
    shop.apply()
    shop.until("Ready", "True")
    shop.settled(1)
    workers = running_workers(process_node)
    with shop.client(redis) as client, redis.client() as connection:
        schedule(client, "far", FAR, HOUR_MS)
        for shards in (4, 2):
            ids = schedule(client, f"near-{shards}", NEAR, 500)
            shop.change(shards)
            body = shop.settled(shards)
            assert "resharding" not in body["status"]
            assert condition(body, "Ready")["status"] == "True"
            have_run(connection, ids)
            found = held(connection)
            assert sum(found) == FAR, found
            assert all(found[:shards]), found
            assert not any(found[shards:]), found
        assert client.cancel("far-7").name == "CANCELLED"
        assert client.counts().waiting == FAR - 1
        assert connection.llen("ledger") == 2 * NEAR, "none ran twice"
    assert shop.told("ReshardingStarted")
    assert shop.told("ReshardingComplete")
    assert shop.told("NotReady") == []
    assert (shop.revisions("scanner"), shop.revisions("worker")) == (3, 1)
    assert running_workers(process_node) == workers


def running_workers(node: ProcessNode) -> set[str]:
    names_there = {str(pod.seen["metadata"]["name"]) for pod in node.pods.values()}
    return {name for name in names_there if "-worker-" in name}


def have_run(connection: Redis, ids: set[str]) -> None:
    def all_of_them() -> bool:
        missing = ids - set(connection.lrange("ledger", 0, -1))
        assert not missing, (sorted(missing), held(connection))
        return True

    eventually(all_of_them, timeout_s=60, what="all tasks ran that fell due")
