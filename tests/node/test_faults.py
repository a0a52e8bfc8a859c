"""Worker containers killed, out of memory, frozen, or without a kubelet: no task is lost, none is settled twice."""

from __future__ import annotations

import os
import random
import signal
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.contract.metrics import WORKER_LEASES_LOST, WORKER_SETTLED

from tests.cluster.harness.waiting import eventually
from tests.exposition import samples

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.node.ledger import Entry
    from tests.node.world import NodeWorld

AWAY_MS = 60_000
LEASE_MS = 5_000
LEAST_LEFT_MS = LEASE_MS * 2 // 3
"""A worker extends its leases at a third of their length, so as much is left of one whose holder dies."""


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def now_ms(world: NodeWorld) -> int:
    seconds, micros = world.connection.time()
    return int(seconds) * 1000 + int(micros) // 1000


def fill(world: NodeWorld, count: int, *, seconds: float | None = None) -> list[Entry]:
    """Have this many handlers run, on all workers; returns their starts."""
    payload = {"do": "hold"} if seconds is None else {"do": "sleep", "seconds": seconds}
    tasks = {f"held-{nth}": payload for nth in range(count)}
    world.schedule(dict(tasks))
    return world.wait_entries("start", tasks)


def test_what_a_killed_worker_held_runs_elsewhere_after_the_lease(world: NodeWorld) -> None:
    """A crash is counted for each task it held, and for no other; the container is started again by itself."""
    world.begin(worker={"replicas": 2, "concurrency": 20})
    victim, _ = world.wait_running(2)
    lost = {entry.id for entry in fill(world, 30) if entry.pod == name(victim)}
    assert lost
    killed_ms = now_ms(world)
    os.kill(world.pid(victim), signal.SIGKILL)
    world.event("PodsFailing", name(victim), "killed by SIGKILL")
    again = world.wait_entries("start", lost, nth=2)
    assert min(entry.at_ms for entry in again) - killed_ms >= LEAST_LEFT_MS - 500
    world.let_go()
    world.account(crashes=dict.fromkeys(lost, 1))
    world.recovered(2)
    assert world.restarts(name(victim)) == 1


def test_a_worker_out_of_memory_says_so_and_its_task_ends_as_a_dead_letter(world: NodeWorld) -> None:
    """The task that takes a worker down is dead after maxCrashes; what waits behind it runs once the worker is back."""
    memory = {"resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}}
    world.begin(worker={"replicas": 1, "container": memory}, delivery={"maxCrashes": 2})
    (worker,) = world.wait_running(1)
    world.schedule({"glutton": {"do": "devour"}})
    world.event("PodsFailing", name(worker), "OOMKilled: it took more memory than its limit")
    world.wait_entries("start", ["glutton"], nth=2)  # alone from here on: only such a crash is charged
    world.told(name(worker), "OOMKilled")
    assert "OOMKilled" in world.until("Ready", "False", "WorkersNotReady")["message"]
    eventually(lambda: died_thrice(world, worker), timeout_s=120, what="who comes later is not dragged along")
    world.schedule({f"patient-{nth}": {"do": "nothing"} for nth in range(20)})
    world.account(crashes={"glutton": 3})
    world.recovered(1)
    assert world.restarts(name(worker)) == 3


def died_thrice(world: NodeWorld, pod: Object) -> bool:
    """Whether its container was started anew twice, and has ended again."""
    (status,) = world.pod(name(pod))["status"]["containerStatuses"]
    return bool(status["restartCount"] + ("running" not in status["state"]) >= 3)


def freeze(world: NodeWorld, pod: Object, started: list[Entry]) -> set[str]:
    """Stop a worker until all it held runs elsewhere, and then let it go on; returns what it held.

    Its pod may be gone, so what it has to say is read where it runs. Each of its tasks was started again with a
    greater token, and what it makes of the old one is refused.
    """
    lost = {entry.id: entry for entry in started if entry.pod == name(pod)}
    assert lost
    pid = world.pid(pod)
    os.kill(pid, signal.SIGSTOP)
    try:
        again = world.wait_entries("start", lost, nth=2)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [entry for entry in again if entry.token <= lost[entry.id].token] == []
    eventually(lambda: refused(pod) == len(lost), timeout_s=60, what="all of it is refused")
    return set(lost)


def refused(pod: Object) -> float:
    """How many leases a worker was told that it does not have any more."""
    url = f"http://{pod['status']['podIP']}:8080/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = list(samples(answer.read().decode()))
    lost = sum(value for sample, _, value in found if sample == WORKER_LEASES_LOST.name)
    settled = [(has["outcome"], value) for sample, has, value in found if sample == WORKER_SETTLED.name]
    return lost + dict(settled)["lease_lost"]


@pytest.mark.full
def test_a_worker_without_a_kubelet_works_on_and_cannot_settle_what_it_lost(world: NodeWorld) -> None:
    """For a minute: its pod is deleted by force, and replaced, but nobody stops its container.

    Kubernetes calls the node NotReady, and its pods with it; tasks run all the same.
    """
    world.begin(worker={"replicas": 2, "concurrency": 20})
    # It stands for a Redis elsewhere: nobody may cut it off because the node that it is on seems to be gone.
    world.patch("services", "redis", {"spec": {"publishNotReadyAddresses": True}})
    orphan, _ = world.wait_running(2)
    pid, began_ms = world.pid(orphan), now_ms(world)
    world.node.kubelet.stop()
    try:
        world.kubectl("delete", "pod", name(orphan), "--force", "--grace-period=0")
        stream = {f"steady-{nth}": None for nth in range(600)}
        world.schedule(dict(stream), partial(random.Random(1).randrange, AWAY_MS))
        lost = freeze(world, orphan, fill(world, 30, seconds=4))
        eventually(lambda: not world.node.ready, timeout_s=90, what="the node is not ready")
        world.told("NodeNotReady")
        assert "may still run" in world.until("Ready", "False")["message"]
        world.schedule({"last": None}, lambda: max(0, AWAY_MS - (now_ms(world) - began_ms)))
        world.wait_entries("end", [*stream, "last"], timeout_s=90)
        assert now_ms(world) - began_ms >= AWAY_MS
        assert Path(f"/proc/{pid}").exists()
    finally:
        world.node.mend()
    after = [entry for entry in world.ledger if entry.pod == name(orphan) and entry.id in stream]
    assert max(entry.at_ms for entry in after) - began_ms > AWAY_MS / 2
    world.recovered(2)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the orphan is stopped")
    world.account(crashes=dict.fromkeys(lost, 1))
