"""While the node of shard 0 is away, clients and processes that start learn the shard map from any other shard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq import Client, Durability, NewTask, SyncClient
from delayq.errors import Unavailable
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, until
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet

SHARDS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries without replicas, whose node timeout is longer than any test; the flavour that has WAITAOF."""
    always = {"appendonly": "yes", "appendfsync": "always"}
    found = Cluster.start(
        "valkey9",
        dir=tmp_path / "cluster",
        node_timeout_ms=120_000,
        replicas=False,
        config=always,
        config_get=True,
    )
    yield found
    for node in found.nodes:
        node.resume()
    found.stop()


def keys_of(fleet: Fleet) -> list[Keys]:
    return [Keys("delayq", fleet.queue, shard) for shard in range(SHARDS)]


@pytest.fixture
def fleet(new_fleet: NewFleet, cluster: Cluster) -> Fleet:
    """A queue of eight shards, each of which knows the shard map; no process runs."""
    fleet = new_fleet({"shards": SHARDS, "delivery": {"maxBlockMilliseconds": 500}}, server=cluster)
    scanner = fleet.start("scanner")
    until(
        lambda: all(cluster.on(keys).exists(keys.shard_map) for keys in keys_of(fleet)),
        "every shard knows the shard map",
    )
    scanner.kill()
    return fleet


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
def test_tasks_of_other_shards_are_stored_and_run_while_shard_0_is_away(
    fleet: Fleet, cluster: Cluster, how: str
) -> None:
    """However many shards a client or a document takes the queue to have, and whatever a client wants confirmed."""
    away = cluster.serving(keys_of(fleet)[0].slot)
    there = [keys.shard for keys in keys_of(fleet) if cluster.serving(keys.slot) is not away]
    ids = [next(f"t{n}" for n in range(1000) if shard_of(f"t{n}", SHARDS) == shard) for shard in there]
    assert ids
    getattr(away, how)()
    wanted: tuple[tuple[int, Durability | None], ...] = (
        (1, None),
        (3, None),
        (SHARDS, Durability("Fsynced", timeout_ms=2000)),
    )
    for shards, durability in wanted:
        with SyncClient(cluster.url, queue=fleet.queue, shards=shards, durability=durability) as client:
            for id_ in ids:
                client.schedule(None, delay_ms=60_000, task_id=id_, if_exists="replace")
            assert client.shard_map.shards == SHARDS

    async def asynchronously() -> None:
        async with Client(cluster.url, queue=fleet.queue, shards=1) as client:
            for id_ in ids:
                assert await client.get(id_) is not None
                await client.cancel(id_)
            await client.schedule_many(NewTask(None, delay_ms=0, task_id=id_) for id_ in ids)

    asyncio.run(asynchronously())
    fleet.change(shards=2)
    fleet.start("worker", ready=False)
    fleet.start("scanner", ready=False)
    until(lambda: fleet.starts().keys() >= set(ids), "all ran")
    check_runs(fleet.starts())


def test_a_queue_that_was_never_used_begins_at_shard_0(fleet: Fleet, cluster: Cluster) -> None:
    """So nothing can be stored while that is away."""
    node = cluster.serving(keys_of(fleet)[0].slot)
    node.kill()
    new = next(f"q{n}" for n in range(1000) if cluster.serving(Keys("delayq", f"q{n}", 0).slot) is node)
    with SyncClient(cluster.url, queue=new, shards=SHARDS) as client:
        for id_ in ("a", "b", "c"):
            with pytest.raises(Unavailable):
                client.schedule(None, delay_ms=1000, task_id=id_)
