"""What a user sees with kubectl: get, wait, describe, explain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.world import World


def rows(table: str) -> list[list[str]]:
    """Columns are two blanks apart or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def test_kubectl_shows_what_matters(world: World) -> None:
    """get: whether the queue is ready, or why not; describe: conditions in words, and events in their order."""
    world.start(worker={"replicas": 2})
    _, line = rows(world.kubectl("get", "delayqueues", "-o", "wide"))
    assert line[:2] == ["orders", "False"]
    assert {"ScannersNotReady", "Unknown"} <= set(line)
    world.edit(worker={"replicas": 3})
    world.event("ScaledUp")
    told = world.kubectl("describe", "dq", "orders")
    for words in (
        "No child needs attention.",
        "No scanner answers the operator.",
        "Created",
        "2 → 3 workers: spec.worker.replicas",
    ):
        assert words in told
    table = world.kubectl("events", "--for=delayqueue/orders")
    assert re.search(r"Normal\s+Created\s+DelayQueue/orders", table)
    (event,) = world.items("events", fieldSelector="reason=Created")
    assert event["source"]["component"] == "delayq-operator"
    assert event["count"] == 1
    assert event["firstTimestamp"]
    world.settle()
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.kubectl("wait", "--for=condition=Ready", "dq/orders", "--timeout=20s")
    # The numbers of tasks are blank while no scanner tells.
    eventually(lambda: rows(world.kubectl("get", "delayqueue"))[1][:4] == ["orders", "True", "3", "3"])
