"""The number of workers follows the work on a real node, from zero and back, though the operator dies meanwhile."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness.waiting import eventually
from tests.node.release import PODS
from tests.node.scaled import Scaled
from tests.node.world import is_ready
from tests.offline.chart import NAMESPACE

if TYPE_CHECKING:
    from tests.node.world import NodeWorld

pytestmark = pytest.mark.timeout(900)


def test_an_operator_that_dies_amid_a_rush_goes_on_where_it_was(world: NodeWorld) -> None:
    """Killed while workers start, and its pod deleted while handlers run: nothing is lost, and the lead is kept.

    Workers are asked for before the tasks fall due, and none is left after them.
    """
    orders = Scaled.begin(world, concurrency=50)
    orders.until_none()
    lead = orders.learn_lead()
    first = {f"first-{nth}": {"do": "sleep", "seconds": 3} for nth in range(100)}
    due_ms = orders.now_ms + (lead + 10) * 1000
    orders.schedule_at(due_ms, dict(first))
    orders.until_number(lambda number: number >= 1)
    assert orders.now_ms < due_ms
    kill(world)
    assert orders.until_told("leadTimeSeconds") >= lead
    world.wait_entries("start", first)
    lead = orders.told["leadTimeSeconds"]
    gone = world.operator.pod["metadata"]["name"]
    world.cluster.kubectl("delete", "pod", gone, f"--namespace={NAMESPACE}", "--wait=false")
    eventually(lambda: replaced(world, gone), timeout_s=60, what="another operator pod")
    world.operator.wait_ready()
    world.wait_entries("end", first)
    orders.until_none()
    assert orders.told["leadTimeSeconds"] >= lead
    stats = world.account()
    assert stats.get("reclaimed", 0) == 0


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
