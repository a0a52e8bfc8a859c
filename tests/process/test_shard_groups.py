"""One node of a Cluster hangs: the tasks of the others' shards run as if nothing was, and its own once it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.protocol.keys import Keys, shard_of

from tests.process.fleet import check_runs, led_by, samples, shards_down, status, until
from tests.servers import PREFERRED
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
    """Three primaries without replicas, whose node timeout is longer than any test."""
    found = Cluster.start(PREFERRED, dir=tmp_path / "cluster", node_timeout_ms=120_000, replicas=False)
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
        told = samples(scanner)
        assert [value for _, value in told["delayq_redis_up"]] == [1]
        counted = {int(labels["shard"]) for labels, _ in told["delayq_tasks"]}
        assert counted == led_by(scanner) - set(gone)
    assert [status(each, "readyz") for each in (worker, *scanners)] == [200] * 3
    hung.resume()
    until(lambda: fleet.starts().keys() >= set(later), "what waited for the node ran")
    until(lambda: not any(map(shards_down, scanners)), "nothing is down")
    check_runs(fleet.starts())
