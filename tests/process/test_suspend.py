"""`delayq suspend` and `delayq resume` on a queue with workers that run: without Kubernetes, and without a restart."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import count, cycle
from typing import TYPE_CHECKING, Any

from delayq import NewTask
from delayq.connection import SyncConnection
from delayq.protocol.keys import Keys

from tests.process.fleet import check_runs, readiness, said, status, until, wait_said
from tests.topologies.cluster import Cluster
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet

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


def test_no_task_is_lost_or_repeated_while_the_queue_is_suspended_and_resumed_again_and_again(
    new_fleet: NewFleet,
) -> None:
    """Fifty times a second, and a worker is killed meanwhile: only the tasks that it ran then run again."""
    delivery = {"leaseDurationSeconds": 1, "backoff": {"delaysSeconds": [0]}}
    fleet = new_fleet({"delivery": delivery, "worker": {"concurrency": 10}})
    killed, _, _ = fleet.start_all("worker", "worker", "scanner")
    ids = {f"t{nth}" for nth in range(500)}
    with fleet.client() as client, closing(SyncConnection(client.address)) as connection:
        client.schedule_many([NewTask({"do": "sleep", "seconds": 0.02}, task_id=each) for each in ids])
        calls = cycle([client.commands.suspend(0, drain=True), client.commands.resume(0)])
        for turn in range(100):
            connection.run([next(calls)])
            if turn == 50:
                killed.kill()
            time.sleep(0.02)
    with fleet.server.client() as redis:
        fleet.wait_drained(redis)
        fleet.snapshot(redis).check()
    starts = fleet.starts()
    check_runs(starts)
    assert starts.keys() == fleet.ended() == ids
    assert {run.pid for runs in starts.values() for run in runs[:-1]} <= {killed.pid}


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


def test_a_worker_that_has_never_reached_shard_0_reads_copies(
    new_fleet: NewFleet, tmp_path: Path, flavour: str
) -> None:
    """If they suspend nothing, it runs the tasks of other shards. If there is none, it claims nothing, and says why."""
    cluster = Cluster.start(flavour, dir=tmp_path / "cluster", replicas=False, appendonly=True)
    try:
        fleet = new_fleet({"shards": SHARDS}, server=cluster)
        keys = [Keys("delayq", fleet.queue, shard) for shard in range(SHARDS)]
        node = cluster.serving(keys[0].slot)
        names = (f"{fleet.queue}-{nth}" for nth in count())
        name = next(each for each in names if cluster.serving(Keys("delayq", each, 0).slot) is node)
        alone = new_fleet({"queueName": name}, server=cluster)
        scanner = fleet.start("scanner")
        until(
            lambda: all(cluster.on(each).exists(each.shard_map) for each in keys),
            "every shard has the shard map",
        )
        scanner.kill()
        for verb, copied in (("suspend", True), ("resume", False)):
            command(fleet, verb)
            found = [bool(cluster.on(each).hexists(each.stats, "suspended")) for each in keys]
            assert found == [copied] * SHARDS
        ids = {f"t{nth}" for nth in range(40)}
        for each in (fleet, alone):
            with each.client() as client:
                client.schedule_many([NewTask({}, task_id=task_id) for task_id in ids])
        served = [each for each in keys if cluster.serving(each.slot) is not node]
        elsewhere = set[str]()
        for shard in served:
            tasks: Any = cluster.on(shard).hkeys(shard.tasks)
            elsewhere |= {task_id.decode() for task_id in tasks}
        node.kill()
        waits = alone.start("worker", ready=False)
        fleet.start("worker")
        until(lambda: fleet.ended() == elsewhere, "it runs the tasks of the other nodes")
        until(lambda: "shard_map_sync (whether the queue is suspended)" in readiness(waits), "the reason")
        assert alone.ledger() == []
        node.restart()
        until(lambda: fleet.ended() == alone.ended() == ids, "shard 0 is back, and all tasks run")
        command(fleet, "suspend")
        node.kill()
        wait_said(fleet.start("worker", ready=False), "queue_suspended")
    finally:
        cluster.stop()
