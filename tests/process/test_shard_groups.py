"""One node of a Cluster hangs or is away, and the shards of the others are served as if nothing was.

A hung node holds up no task of another one. While the node of shard 0 is away, clients and processes that start learn
the shard map from any other shard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from delayq import Client, Durability, NewTask, SyncClient
from delayq.errors import Unavailable
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, led_by, samples, shards_down, status, until
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import NewFleet

SHARDS = 16  # so many that no node has all, or none
SPEC = {"shards": SHARDS, "delivery": {"maxBlockMilliseconds": 500}, "worker": {"concurrency": 2}}
TASKS = 60
LATE_MS = 4000
"""Less than the five seconds for which a call may be unanswered."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries without replicas, whose node timeout is longer than any test; the flavour that has WAITAOF."""
    found = Cluster.start(
        "valkey9",
        dir=tmp_path / "cluster",
        node_timeout_ms=120_000,
        replicas=False,
        config={"appendonly": "yes", "appendfsync": "always"},
        config_get=True,
    )
    yield found
    for node in found.nodes:
        node.resume()
    found.stop()


def ids_in(shards: list[int], count: int) -> list[str]:
    """Task ids that are stored in these shards."""
    some = (f"t{nth}" for nth in range(100 * count))
    return [id_ for id_ in some if shard_of(id_, SHARDS) in shards][:count]


def test_a_hung_node_holds_up_no_other_shards(new_fleet: NewFleet, cluster: Cluster) -> None:
    fleet = new_fleet(SPEC, server=cluster)
    *scanners, worker = fleet.start_all("scanner", "scanner", "worker")
    until(lambda: sum(len(led_by(each)) for each in scanners) == SHARDS, "every shard is led")
    hung = cluster.nodes[0]
    homes = {n: cluster.serving(Keys("delayq", fleet.queue, n).slot) for n in range(SHARDS)}
    gone = [shard for shard, node in homes.items() if node is hung]
    rest = [shard for shard, node in homes.items() if node is not hung]
    before, later = ids_in(gone, 5), ids_in(gone, 10)[5:]
    ids = ids_in(rest, TASKS)
    with fleet.client() as client:
        for id_ in before:
            client.schedule(None, delay_ms=0, task_id=id_)
        until(lambda: fleet.starts().keys() >= set(before), "the node's tasks ran")
        for id_ in later:
            client.schedule(None, delay_ms=1000, task_id=id_)
        hung.pause()
        waited_ms = fleet.waited_for_core_ms()
        for nth, id_ in enumerate(ids):
            client.schedule(None, delay_ms=1000 + nth * 100, task_id=id_)
    until(lambda: fleet.starts().keys() >= set(ids), "the others' tasks ran")
    waited_ms = fleet.waited_for_core_ms() - waited_ms
    late = sorted(runs[0].at_ms - runs[0].due_ms for id_, runs in fleet.starts().items() if id_ in ids)
    print(f"lateness ms: p50={late[TASKS // 2]} max={late[-1]}; waited for a core: {waited_ms:.0f}")
    assert late[-1] < LATE_MS + waited_ms

    expected = dict.fromkeys(gone, hung.port)
    for scanner in scanners:
        until(lambda of=scanner: shards_down(of) == expected, "it tells of the hung node")  # type: ignore[misc]
        reported = samples(scanner)
        assert [value for _, value in reported["delayq_redis_up"]] == [1]
        counted = {int(labels["shard"]) for labels, _ in reported["delayq_tasks"]}
        assert counted == led_by(scanner) - set(gone)
    assert [status(each, "readyz") for each in (worker, *scanners)] == [200] * 3
    hung.resume()
    until(lambda: fleet.starts().keys() >= set(later), "what waited for the node ran")
    until(lambda: not any(map(shards_down, scanners)), "nothing is down")
    check_runs(fleet.starts())


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
def test_tasks_of_other_shards_are_stored_and_run_while_shard_0_is_away(
    new_fleet: NewFleet, cluster: Cluster, how: str
) -> None:
    """However many shards a client or a document takes the queue to have, and with any confirmation.

    A queue that was never used begins at shard 0: nothing can be stored while that is away.
    """
    fleet = new_fleet(SPEC, server=cluster)
    keys = [Keys("delayq", fleet.queue, shard) for shard in range(SHARDS)]
    scanner = fleet.start("scanner")
    until(
        lambda: all(cluster.on(each).exists(each.shard_map) for each in keys),
        "every shard has the shard map",
    )
    scanner.kill()
    away = cluster.serving(keys[0].slot)
    there = [each.shard for each in keys if cluster.serving(each.slot) is not away]
    ids = [next(f"t{n}" for n in range(1000) if shard_of(f"t{n}", SHARDS) == shard) for shard in there]
    assert ids
    unused = next(f"q{n}" for n in range(1000) if cluster.serving(Keys("delayq", f"q{n}", 0).slot) is away)
    getattr(away, how)()
    fsynced = Durability("Fsynced", timeout_ms=2000)
    for shards, durability in ((1, None), (3, None), (SHARDS, fsynced)):
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
    with SyncClient(cluster.url, queue=unused, shards=SHARDS) as client, pytest.raises(Unavailable):
        client.schedule(None, delay_ms=1000)
