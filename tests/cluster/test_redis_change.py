"""A spec.redis that names another Redis is refused while the old one holds tasks; processes go on with the old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from delayq import SyncClient

from tests.cluster.harness.waiting import eventually
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.world import World


def served(world: World) -> int:
    """Port of the Redis in the document that the processes read."""
    text = world.get("configmaps", "orders-config")["data"]["queue.yaml"]
    return int(yaml.safe_load(text)["spec"]["redis"]["standalone"]["port"])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer]]:
    """The old one and the new one."""
    old, new = (RedisServer.start(PREFERRED, dir=tmp_path / each) for each in ("old", "new"))
    yield old, new
    old.stop()
    new.stop()


def create(world: World, port: int) -> None:
    world.create(
        redis={"standalone": {"host": "127.0.0.1", "port": port}},
        handler={"python": {"callable": "json:dumps"}},
        scanner={"replicas": 1},
        worker={"replicas": 0},
    )
    world.until("BackendAvailable", "True", timeout_s=60)


def refused(world: World, client: SyncClient, old: RedisServer, new: RedisServer) -> str:
    """Have one task in the old Redis, and an edit to the new one that is refused; the task."""
    task = client.schedule({}, delay_ms=3_600_000)

    def measured() -> bool:
        return bool(world.queue()["status"].get("backlog", {}).get("scheduled") == 1)

    eventually(measured, timeout_s=60, what="the task is counted")
    world.edit(redis={"standalone": {"port": new.port}})
    world.until("Accepted", "False", "RedisNotEmpty")
    world.event("RedisNotEmpty", "spec.redis names another Redis")
    assert served(world) == old.port
    return task.id


@pytest.mark.usefixtures("process_node")
def test_another_redis_is_taken_when_the_old_one_is_empty_or_its_tasks_may_be_abandoned(
    world: World, servers: tuple[RedisServer, RedisServer]
) -> None:
    """And a deletion erases nothing in one that was refused: another system may have a queue of this name there."""
    old, new = servers
    create(world, old.port)
    with SyncClient(old.url, queue="orders") as client, SyncClient(new.url, queue="orders") as other:
        client.cancel(refused(world, client, old, new))
        eventually(lambda: served(world) == new.port, timeout_s=60, what="the new Redis is taken")
        world.until("Accepted", "True")
        refused(world, other, new, old)
        world.annotate(abandon_tasks=f"127.0.0.1:{new.port}")
        eventually(lambda: served(world) == old.port, timeout_s=60, what="the old Redis is taken")

        # The annotation is about the Redis that it names, and not about the next change.
        refused(world, client, old, new)
        world.edit(deletionPolicy="Delete")
        eventually(lambda: world.queue()["metadata"].get("finalizers"), what="the finalizer")
        world.delete("delayqueues", "orders")
        reported = world.until("Degraded", "True", "EraseFailed")["message"]
        assert "spec.redis named before" in reported
        world.edit(redis={"standalone": {"port": old.port}})
        eventually(lambda: not world.there("delayqueues", "orders"), timeout_s=60, what="it is gone")
        assert (client.counts().scheduled, other.counts().scheduled) == (0, 1)
