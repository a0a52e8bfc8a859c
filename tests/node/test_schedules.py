"""A DelaySchedule on a real node: its scanner watches with the token that the kubelet mounts, and workers are early."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.plugin import Plugin
from tests.node.scaled import Scaled

if TYPE_CHECKING:
    from tests.node.world import NodeWorld

pytestmark = pytest.mark.timeout(600)

PLURAL = names.DELAY_SCHEDULE.plural


def test_workers_are_asked_for_before_an_hourly_schedule_is_due_though_there_were_none(
    world: NodeWorld,
) -> None:
    """Its occurrence begins as soon as it is due and one is ready; and none is left afterwards."""
    orders = Scaled.begin(world, concurrency=10, schedules={})
    lead = orders.learn_lead()
    orders.until_none()
    kind = {"apiVersion": names.API_VERSION, "kind": names.DELAY_SCHEDULE.kind}
    spec = {"queueRef": {"name": "orders"}, "everySeconds": 3600, "suspend": True}
    world.make(PLURAL, {**kind, "metadata": {"name": "hourly"}, "spec": spec})
    eventually(lambda: conditions(world).get("Suspended"), timeout_s=60, what="a scanner has seen it")
    due_s = orders.now_ms // 1000 + lead + 20
    due = datetime.fromtimestamp(due_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.patch(PLURAL, "hourly", {"spec": {"suspend": False, "anchorTime": due, "startTime": due}})
    orders.until_number(lambda number: number > 0, timeout_s=lead + 30)
    assert orders.now_ms < due_s * 1000, "a worker was asked for only when the occurrence was due"
    eventually(world.running, timeout_s=lead + 60, what="a worker is ready")
    ready_ms = orders.now_ms  # later than the lead says if the node has other work
    [entry] = world.wait_entries("start", [f"@hourly@{due}"])
    assert due_s * 1000 <= entry.at_ms < max(due_s * 1000, ready_ms) + 2000
    orders.until_none()
    assert conditions(world) == {"Accepted": "True", "Ready": "True", "Suspended": "False"}

    def told() -> bool:
        last = world.get(PLURAL, "hourly")["status"].get("lastRun", {})
        return bool(last.get("nominalTime") == due)

    eventually(told, timeout_s=30, what="the status has the run")
    plugin = Plugin(world.cluster, world.namespace)
    [made] = plugin.run("schedules", "run", "orders", "hourly").stdout.splitlines()
    world.wait_entries("start", [made])
    assert [line.split()[0] for line in plugin.run("schedules", "list", "orders").stdout.splitlines()] == [
        "SCHEDULE",
        "hourly",
    ]


def conditions(world: NodeWorld) -> dict[str, str]:
    found = world.get(PLURAL, "hourly").get("status", {}).get("conditions", [])
    return {each["type"]: each["status"] for each in found}
