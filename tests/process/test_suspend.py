"""`delayq suspend` and `delayq resume` on a queue with workers that run: without Kubernetes, and without a restart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from delayq.protocol.keys import Keys

from tests.process.fleet import said, status, until, wait_said
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from tests.process.fleet import Fleet, NewFleet
    from tests.topologies.cluster import Cluster

SHARDS = 8


def command(fleet: Fleet, verb: str, *options: str) -> str:
    result = run(verb, str(fleet.config), "--redis", fleet.server.url, *options)
    assert result.exit_code == 0, result.output
    return result.stdout + result.stderr


def start_ms(fleet: Fleet, task_id: str) -> int:
    return fleet.wait_entry("start", task_id).at_ms


def test_workers_claim_nothing_more_until_the_queue_is_resumed(new_fleet: NewFleet) -> None:
    """Running tasks end, and `--drain` waits for them. Neither a later worker nor an outage of Redis changes this."""
    fleet = new_fleet()
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule({"do": "sleep", "seconds": 10}, task_id="long")
        fleet.wait_entry("start", "long")
        answer = command(fleet, "suspend", "--drain")
        assert "1 task in flight\n" in answer
        assert f"{fleet.queue} drained: no task runs\n" in answer
        assert fleet.ended() == {"long"}
        wait_said(worker, "queue_suspended")
        client.schedule({}, task_id="waits")
        later = fleet.start("worker")
        wait_said(later, "queue_suspended")
        fleet.server.kill()
        until(lambda: [status(each, "readyz") for each in (worker, later)] == [503, 503], "both have noticed")
        fleet.server.restart()
        until(lambda: [status(each, "readyz") for each in (worker, later)] == [200, 200], "both are ready")
        resumed_ms = time.time_ns() // 1_000_000
        command(fleet, "resume")
        assert start_ms(fleet, "waits") >= resumed_ms
    assert [len(said(each, "queue_suspended")) for each in (worker, later)] == [1, 1]
    wait_said(later, "queue_resumed")


def test_resuming_does_not_start_the_tasks_of_a_queue_that_its_document_suspends(new_fleet: NewFleet) -> None:
    fleet = new_fleet({"suspend": True})
    worker = fleet.start("worker")
    with fleet.client() as client:
        client.schedule({}, task_id="waits")
        command(fleet, "suspend")
        wait_said(worker, "queue_suspended")
        assert "still suspended by the document: spec.suspend is true" in command(fleet, "resume")
        wait_said(worker, "queue_resumed")
        command(fleet, "suspend")
        worker.kill()
        fleet.change(suspend=False)
        wait_said(fleet.start("worker"), "queue_suspended")
        resumed_ms = time.time_ns() // 1_000_000
        command(fleet, "resume")
        assert start_ms(fleet, "waits") >= resumed_ms


def test_a_worker_that_has_never_reached_shard_0_reads_a_copy(new_fleet: NewFleet, cluster: Cluster) -> None:
    fleet = new_fleet({"shards": SHARDS}, server=cluster)
    keys = [Keys("delayq", fleet.queue, shard) for shard in range(SHARDS)]
    scanner = fleet.start("scanner")
    until(
        lambda: all(cluster.on(each).exists(each.shard_map) for each in keys),
        "every shard has the shard map",
    )
    scanner.kill()
    for verb, copied in (("suspend", True), ("resume", False), ("suspend", True)):
        command(fleet, verb)
        assert [bool(cluster.on(each).hexists(each.stats, "suspended")) for each in keys] == [copied] * SHARDS
    cluster.serving(keys[0].slot).kill()
    wait_said(fleet.start("worker", ready=False), "queue_suspended")
