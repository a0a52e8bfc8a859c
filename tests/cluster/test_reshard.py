"""spec.shards changes while tasks wait and run: real scanners move them, workers follow, and the status tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import SyncClient
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition
from tests.cluster.test_end_to_end import document

if TYPE_CHECKING:
    from redis import Redis

    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.world import World
    from tests.servers import RedisServer

FAR, NEAR = 60, 40  # tasks that wait for an hour, and tasks that fall due while others move
HOUR_MS = 3_600_000
PATIENCE_SECONDS = 120


def held(connection: Redis) -> list[int]:
    """How many tasks each shard holds, of the eight that there may have been."""
    return [int(connection.hlen(f"delayq:{{orders:{shard}}}:tasks")) for shard in range(8)]


def settled(world: World, shards: int) -> None:
    def there() -> bool:
        told = world.until("ReshardingComplete", "True", timeout_s=PATIENCE_SECONDS)["message"]
        assert told == (f"Tasks are in {shards} shards." if shards > 1 else "")
        return True

    eventually(there, timeout_s=PATIENCE_SECONDS, what=f"tasks are in {shards} shards")


def test_shards_become_more_and_fewer_and_no_task_is_lost_or_late(
    world: World, redis: RedisServer, process_node: ProcessNode
) -> None:
    """1 → 4 → 2, with tasks that wait and tasks that run meanwhile. Scanners are replaced, and workers never."""
    world.make(names.PLURAL, document(world, redis))
    world.until("Ready", "True", timeout_s=40)
    settled(world, 1)
    workers = running_workers(process_node)
    with SyncClient(redis.url, queue="orders") as client, redis.client() as connection:

        def schedule(name: str, number: int, delay_ms: int) -> set[str]:
            delays = range(delay_ms, delay_ms + number * 100, 100)
            each = enumerate(delays)
            return {client.schedule({}, delay_ms=ms, task_id=f"{name}-{at}").id for at, ms in each}

        schedule("far", FAR, HOUR_MS)
        for shards in (4, 2):
            ids = schedule(f"near-{shards}", NEAR, 500)
            world.edit(shards=shards)
            settled(world, shards)
            assert "resharding" not in world.queue()["status"]
            assert condition(world.queue(), "Ready")["status"] == "True"
            have_run(connection, ids)
            found = held(connection)
            assert sum(found) == FAR, found
            assert all(found[:shards]), found
            assert not any(found[shards:]), found
        assert client.cancel("far-7").name == "CANCELLED"
        assert client.counts().waiting == FAR - 1
        assert connection.llen("ledger") == 2 * NEAR, "none ran twice"
    assert world.events("ReshardingStarted")
    assert world.events("ReshardingComplete")
    assert world.events("NotReady") == []
    assert (world.revisions("scanner"), world.revisions("worker")) == (3, 1)
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
