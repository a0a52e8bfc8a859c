"""One node of a Cluster hangs: the tasks of the others' shards run as if nothing was, and its own once it goes on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, led_by, status, until
from tests.process.test_scrape import samples
from tests.servers import PREFERRED
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq import SyncClient

    from tests.process.fleet import Fleet, NewFleet
    from tests.processes import Process
    from tests.servers import RedisServer

SHARDS, MAX_BLOCK_MS = 16, 500  # so many that no node has all, or none
SPEC = {"shards": SHARDS, "delivery": {"maxBlockMilliseconds": MAX_BLOCK_MS}, "worker": {"concurrency": 2}}
TASKS = 60
LATE_MS = 4000
"""Less than the five seconds for which a call may be unanswered, and more than any noise."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three primaries that nobody stands in for, and that believe in each other for longer than any test takes."""
    found = Cluster.start(PREFERRED, dir=tmp_path / "cluster", node_timeout_ms=120_000, replicas=False)
    try:
        yield found
    finally:
        for node in found.nodes:
            node.resume()
        found.stop()


def by_node(cluster: Cluster, fleet: Fleet) -> dict[int, list[int]]:
    """Shards by the port of the node that holds them."""
    found: dict[int, list[int]] = {}
    for shard in range(SHARDS):
        found.setdefault(cluster.serving(Keys("delayq", fleet.queue, shard).slot).port, []).append(shard)
    return found


def ids_in(shards: list[int], count: int) -> list[str]:
    """Task ids that are stored in these shards."""
    some = (f"t{nth}" for nth in range(100 * count))
    return [id_ for id_ in some if shard_of(id_, SHARDS) in shards][:count]


def schedule(client: SyncClient, ids: list[str], within_ms: int) -> None:
    for nth, id_ in enumerate(ids):
        client.schedule(None, delay_ms=1000 + nth * within_ms // len(ids), task_id=id_)


def wait_ran(fleet: Fleet, ids: list[str]) -> None:
    until(lambda: fleet.starts().keys() >= set(ids), f"{len(ids)} tasks ran", timeout_s=60)


def test_a_hung_node_holds_up_no_other_shards(new_fleet: NewFleet, cluster: Cluster) -> None:
    fleet = new_fleet(SPEC, server=cluster)
    scanners = fleet.start_all("scanner", "scanner", "worker")[:2]
    worker = fleet.processes[2]
    until(lambda: sum(len(led_by(each)) for each in scanners) == SHARDS, "every shard is led")
    hung: RedisServer = cluster.nodes[0]
    shards = by_node(cluster, fleet)
    gone = shards.pop(hung.port)
    rest = sorted(shard for held in shards.values() for shard in held)
    waiting, ids, later = ids_in(gone, 5), ids_in(rest, TASKS), ids_in(gone, 10)[5:]
    with fleet.client() as client:
        schedule(client, waiting, 1)
        wait_ran(fleet, waiting)
        schedule(client, later, 1)
        hung.pause()
        schedule(client, ids, 8000)
    wait_ran(fleet, ids)
    late = sorted(runs[0].at_ms - runs[0].due_ms for id_, runs in fleet.starts().items() if id_ in ids)
    print(f"lateness ms: p50={late[TASKS // 2]} p90={late[TASKS * 9 // 10]} max={late[-1]}")
    assert late[-1] < LATE_MS

    expected = dict.fromkeys(gone, hung.port)
    for scanner in scanners:
        until(partial(tells, scanner, expected), "it tells of the hung node")
        told = samples(scanner)
        assert [value for _, value in told["delayq_redis_up"]] == [1]
        counted = {int(labels["shard"]) for labels, _ in told["delayq_tasks"]}
        assert counted == led_by(scanner) - set(gone)
        assert status(scanner, "readyz") == 200
    assert status(worker, "readyz") == 200
    hung.resume()
    wait_ran(fleet, later)
    until(lambda: not any(map(down, scanners)), "nothing is down")
    check_runs(fleet.starts())


def tells(scanner: Process, expected: dict[int, int]) -> bool:
    return down(scanner) == expected


def down(scanner: Process) -> dict[int, int]:
    """Shards that a scanner is not served with, and the port of the server that it says they are on."""
    return {
        int(labels["shard"]): int(labels["server"].rpartition(":")[2] or 0)
        for labels, value in samples(scanner)["delayq_shard_down"]
        if value == 1
    }
