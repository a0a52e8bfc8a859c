"""The number of workers follows the work on a real node, from zero and back, though the operator dies meanwhile."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.plugin import Plugin
from tests.node.release import PODS
from tests.node.scaled import WORKER, Scaled
from tests.node.world import QUEUE, is_ready
from tests.offline.chart import NAMESPACE

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.node.world import NodeWorld

pytestmark = pytest.mark.timeout(900)


def test_an_operator_that_dies_amid_a_rush_goes_on_where_it_was(world: NodeWorld) -> None:
    """Killed while workers start, and its pod deleted while handlers run: nothing is lost, and the lead is kept.

    Workers are asked for before the tasks fall due, when status said they would be, and none is left after them.
    """
    orders = Scaled.begin(world, concurrency=50)
    orders.until_none()
    lead = orders.learn_lead()
    first = {f"first-{nth}": {"do": "sleep", "seconds": 3} for nth in range(100)}
    due_ms = world.now_ms + 3_600_000
    orders.schedule_at(due_ms, dict(first))
    eventually(lambda: wakes(orders.reported, due_ms / 1000), timeout_s=60, what="status.scaling.wakeTime")
    # Several workers are expected to take longer than one: if lead is long, they are asked for at once.
    due_ms = world.now_ms + (lead + 15) * 1000
    orders.reschedule(due_ms)
    orders.until_number(lambda number: number >= 1)
    pods = eventually(lambda: world.pods("worker"), what="a worker's pod")
    assert datetime.fromisoformat(pods[0]["metadata"]["creationTimestamp"]).timestamp() < due_ms / 1000
    kill(world)
    assert orders.until_reported("leadTimeSeconds") >= lead
    world.wait_entries("start", first, timeout_s=lead + 60)
    lead = orders.reported["leadTimeSeconds"]
    gone = world.operator.pod["metadata"]["name"]
    world.cluster.kubectl("delete", "pod", gone, f"--namespace={NAMESPACE}", "--wait=false")
    eventually(lambda: replaced(world, gone), timeout_s=60, what="another operator pod")
    world.operator.wait_ready()
    world.wait_entries("end", first)
    orders.until_none()
    assert orders.reported["leadTimeSeconds"] >= lead
    metric = partial(world.operator.metric, namespace=world.namespace, name=QUEUE)
    assert metric("delayq_operator_worker_lead_seconds") == pytest.approx(
        orders.reported["leadTimeSeconds"], abs=1
    )
    assert metric("delayq_operator_worker_handler_seconds") > 0
    stats = world.account()
    assert stats.get("reclaimed", 0) == 0


def test_the_idle_workers_go_and_the_busy_ones_stay(world: NodeWorld) -> None:
    """Four workers, two of them with a long task each, become two: nothing is interrupted.

    With nothing else due these stay, too, for as long as they hold a lease.
    """
    orders = Scaled.begin(world, concurrency=1, autoscaling={"minReplicas": 4, "maxReplicas": 4})
    there = {pod["metadata"]["name"] for pod in world.wait_running(4)}
    world.schedule({f"held-{nth}": {"do": "hold"} for nth in range(2)})
    busy = {entry.pod for entry in world.wait_entries("start", world.payloads)}
    assert len(busy) == 2
    mark = world.enqueue()
    world.edit(autoscaling={"minReplicas": 2, "maxReplicas": 2})
    left = {pod["metadata"]["name"]: pod for pod in world.wait_running(2)}
    assert left.keys() == busy
    for pod in left.values():
        assert names.DELETION_COST not in pod["metadata"].get("annotations", {})
    written = [words for words in world.written(mark) if words.startswith("patch pods/")]
    assert sorted(written) == [f"patch pods/{name}" for name in sorted(there - busy)], (
        "none for those that stay"
    )

    decisions = partial(world.operator.metric, "delayq_operator_decision_seconds_count")
    with world.numbers("deployments", WORKER, "spec", "replicas") as seen:
        world.edit(autoscaling={"minReplicas": 0, "cooldownSeconds": 0})
        before = decisions()
        eventually(lambda: decisions() >= before + 5, timeout_s=60, what="five decisions")
        assert seen == []
        world.let_go()
        orders.until_none()
    assert world.account().get("reclaimed", 0) == 0


def test_delayq_suspend_stops_pods_and_a_drain_outlives_the_operator(world: NodeWorld) -> None:
    """The condition and `kubectl dq` name what suspends the queue. No worker starts until `delayq resume`.

    Its state is in Redis: the document does not change, and no pod restarts until the drain.
    """
    orders = Scaled.begin(world, concurrency=5, autoscaling={"minReplicas": 1})
    dq = Plugin(world.cluster, world.namespace)
    world.schedule({"before": {"do": "hold"}})
    world.wait_entries("start", ["before"])
    (pod,) = world.wait_running(1)
    assert "orders suspended" in in_a_pod(world, "suspend", "--reason=incident 7")
    eventually(
        lambda: "queue_suspended" in world.kubectl("logs", pod["metadata"]["name"]),
        what="the worker has read it",
    )
    world.until("Suspended", "True", "Holding")
    decisions = partial(world.operator.metric, "delayq_operator_decision_seconds_count")
    decided, waits = decisions(), {f"waits-{nth}": None for nth in range(50)}
    with world.numbers("deployments", WORKER, "spec", "replicas") as seen:
        world.schedule(dict(waits))
        said = world.until("ScalingActive", "False", "Suspended")["message"]
        assert "delayq suspend is in effect since" in said
        assert "delayq suspend is in effect" in dq.out("status", "orders")
        assert "note: still suspended by delayq suspend" in dq.run("resume", "orders").stderr
        polled(world, 2)
        assert (seen, decisions()) == ([], decided)
    assert [each["metadata"]["uid"] for each in world.running()] == [pod["metadata"]["uid"]]
    assert {entry.id for entry in world.ledger} == {"before"}, "nothing else was claimed"

    world.let_go()
    assert "orders drained: no task runs" in in_a_pod(world, "suspend", "--drain")
    orders.until_none()
    world.until("Suspended", "True", "Drained")
    with world.numbers("deployments", WORKER, "spec", "replicas") as seen:
        kill(world)
        polled(world, 2)
        world.until("Suspended", "True", "Drained")
        assert seen == []
    assert {entry.id for entry in world.ledger} == {"before"}
    resumed_ms = world.now_ms
    assert "orders resumed" in in_a_pod(world, "resume")
    world.until("Suspended", "False", "NotSuspended")
    assert min(entry.at_ms for entry in world.wait_entries("start", waits)) >= resumed_ms
    assert world.account().get("reclaimed", 0) == 0


def wakes(told: Object, due: float) -> bool:
    """Whether status says that the first worker starts a lead time, and two decisions, before these tasks are due."""
    assert "wakeTime" in told, told
    wake = datetime.fromisoformat(told["wakeTime"]).timestamp()
    assert abs(wake - (due - told["leadTimeSeconds"] - 4)) < 8, told
    return True


def polled(world: NodeWorld, more: int) -> None:
    """Return when the operator has read the scanners so many times more."""
    reads = partial(world.operator.metric, "delayq_operator_scrapes_total", component="scanner")
    before = reads()
    eventually(lambda: reads() >= before + more, timeout_s=60, what="the operator reads the scanner")


def in_a_pod(world: NodeWorld, verb: str, *options: str) -> str:
    """Run a command of delayq as docs/how-to/pause.md says."""
    return world.kubectl("exec", "deploy/orders-scanner", "--", "delayq", verb, QUEUE, *options)


def replaced(world: NodeWorld, gone: str) -> bool:
    """Whether another operator pod is ready; for a moment there is none at all."""
    pods = world.cluster.rest.items(PODS, labelSelector="app.kubernetes.io/component=operator")
    return any(is_ready(pod) and pod["metadata"]["name"] != gone for pod in pods)


def kill(world: NodeWorld) -> None:
    """Kill the operator's process, and wait until its container runs again and leads."""
    pod = world.operator.pod
    (pid,) = world.node.pids(pod)
    os.kill(pid, signal.SIGKILL)

    def again() -> bool:
        (status,) = world.operator.pod["status"]["containerStatuses"]
        (before,) = pod["status"]["containerStatuses"]
        return bool(status["restartCount"] > before["restartCount"] and status["ready"])

    eventually(again, timeout_s=60, what="the operator's container was started again")
    world.operator.wait_ready()
