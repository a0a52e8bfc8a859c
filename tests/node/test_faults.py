"""Worker containers that are killed or run out of memory: no task is lost, and the cause is reported."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.node.ledger import Entry
    from tests.node.world import NodeWorld, Payload

LEASE_MS = 5_000
LEAST_LEFT_MS = LEASE_MS * 2 // 3
"""A worker extends its leases at a third of their length, so as much is left of one whose holder dies."""


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def fill(world: NodeWorld, count: int) -> list[Entry]:
    """Have this many handlers run, on all workers; returns their starts."""
    tasks: dict[str, Payload] = {f"held-{nth}": {"do": "hold"} for nth in range(count)}
    world.schedule(tasks)
    return world.wait_entries("start", tasks)


def test_what_a_killed_worker_held_runs_elsewhere_after_the_lease(world: NodeWorld) -> None:
    """A crash is counted for each task it held, and for no other; the container is started again by itself."""
    world.begin(worker={"replicas": 2, "concurrency": 20})
    victim, _ = world.wait_running(2)
    lost = {entry.id for entry in fill(world, 30) if entry.pod == name(victim)}
    assert lost
    killed_ms = world.now_ms
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
    world.reported(name(worker), "OOMKilled")
    eventually(lambda: "OOMKilled" in world.until("Ready", "False", "WorkersNotReady")["message"])
    eventually(lambda: died_thrice(world, worker), timeout_s=120, what="who comes later is not dragged along")
    world.schedule({f"patient-{nth}": {"do": "nothing"} for nth in range(20)})
    world.account(crashes={"glutton": 3})
    world.recovered(1)
    assert world.restarts(name(worker)) == 3


def died_thrice(world: NodeWorld, pod: Object) -> bool:
    """Whether its container was started anew twice, and has ended again."""
    (status,) = world.pod(name(pod))["status"]["containerStatuses"]
    return bool(status["restartCount"] + ("running" not in status["state"]) >= 3)
