"""Whoever comes while shard 0 is away goes by what any other shard knows, and is held up by none that is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import yaml
from delayq import Client, NewTask, SyncClient
from delayq.errors import Unavailable
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, until
from tests.servers import PREFERRED
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet

SHARDS = 8


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries that nobody stands in for, and that believe in each other for longer than any test takes."""
    flavour: str = getattr(request, "param", PREFERRED)
    found = Cluster.start(
        flavour,
        dir=tmp_path / "cluster",
        node_timeout_ms=120_000,
        replicas=False,
        config={"appendonly": "yes", "appendfsync": "always"},
        config_get=True,
    )
    try:
        yield found
    finally:
        for node in found.nodes:
            node.resume()
        found.stop()


@pytest.fixture
def fleet(new_fleet: NewFleet, cluster: Cluster) -> Fleet:
    """A queue of eight shards, each of which knows that; nothing runs."""
    fleet = new_fleet({"shards": SHARDS, "delivery": {"maxBlockMilliseconds": 500}}, server=cluster)
    scanner = fleet.start("scanner")

    def told() -> bool:
        every = [Keys("delayq", fleet.queue, shard) for shard in range(SHARDS)]
        return all(cluster.on(keys).exists(keys.shard_map) for keys in every)

    until(told, "every shard knows the shard map")
    scanner.kill()
    return fleet


def elsewhere(cluster: Cluster, fleet: Fleet) -> list[str]:
    """Ids of tasks that are not on the node of shard 0, of each shard one."""
    node = cluster.serving(Keys("delayq", fleet.queue, 0).slot)
    shards = [n for n in range(SHARDS) if cluster.serving(Keys("delayq", fleet.queue, n).slot) is not node]
    assert shards
    return [next(f"t{n}" for n in range(1000) if shard_of(f"t{n}", SHARDS) == shard) for shard in shards]


def goes(cluster: Cluster, fleet: Fleet, how: str) -> None:
    """The node of shard 0 hangs, or is dead."""
    getattr(cluster.serving(Keys("delayq", fleet.queue, 0).slot), how)()


@pytest.mark.parametrize("how", ["pause", "kill"])
@pytest.mark.parametrize(
    "shards", [1, pytest.param(3, marks=pytest.mark.full), pytest.param(SHARDS, marks=pytest.mark.full)]
)
def test_a_new_client_schedules_wherever_it_can(
    fleet: Fleet, cluster: Cluster, how: str, shards: int
) -> None:
    """Whatever it takes the number of shards to be, and though it asks for what replicas would confirm."""
    ids = elsewhere(cluster, fleet)
    goes(cluster, fleet, how)
    with SyncClient(cluster.url, queue=fleet.queue, shards=shards) as client:
        for id_ in ids:
            client.schedule(None, delay_ms=60_000, task_id=id_)
        assert client.shard_map.shards == SHARDS

    async def others() -> None:
        async with Client(cluster.url, queue=fleet.queue, shards=shards) as client:
            for id_ in ids:
                assert await client.get(id_) is not None
                await client.cancel(id_)
            await client.schedule_many(NewTask(None, delay_ms=60_000, task_id=id_) for id_ in ids)

    asyncio.run(others())


def test_a_queue_that_nobody_has_used_is_for_shard_0_to_begin(fleet: Fleet, cluster: Cluster) -> None:
    goes(cluster, fleet, "kill")
    node = cluster.serving(Keys("delayq", fleet.queue, 0).slot)
    new = next(f"q{n}" for n in range(1000) if cluster.serving(Keys("delayq", f"q{n}", 0).slot) is node)
    with SyncClient(cluster.url, queue=new, shards=SHARDS) as client:
        for id_ in ("a", "b", "c"):
            with pytest.raises(Unavailable):
                client.schedule(None, delay_ms=1000, task_id=id_)


@pytest.mark.parametrize("cluster", ["valkey9"], indirect=True)
def test_a_client_that_waits_for_the_disk_asks_only_the_servers_it_needs(
    fleet: Fleet, cluster: Cluster
) -> None:
    ids = elsewhere(cluster, fleet)
    goes(cluster, fleet, "pause")
    with SyncClient(cluster.url, queue=fleet.queue, shards=SHARDS, durability="Fsynced") as client:
        for id_ in ids:
            client.schedule(None, delay_ms=60_000, task_id=id_)


@pytest.mark.parametrize("how", ["pause", "kill"])
def test_processes_that_start_meanwhile_look_after_all_shards_there_are(
    fleet: Fleet, cluster: Cluster, how: str
) -> None:
    """Their document says two, for it is older, or newer, than what holds."""
    ids = elsewhere(cluster, fleet)
    document = yaml.safe_load(fleet.config.read_text())
    document["spec"]["shards"] = 2
    fleet.config.write_text(yaml.safe_dump(document))
    goes(cluster, fleet, how)
    fleet.start("worker", ready=False)
    fleet.start("scanner", ready=False)
    with SyncClient(cluster.url, queue=fleet.queue, shards=SHARDS) as client:
        for id_ in ids:
            client.schedule(None, delay_ms=1000, task_id=id_)
    until(lambda: fleet.starts().keys() >= set(ids), "all ran", timeout_s=60)
    check_runs(fleet.starts())
