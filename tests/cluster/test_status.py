"""Status says what is: every condition from the first visit on, scanners' numbers, and no write without news."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq import SyncClient
from delayq.contract import parse
from delayq_operator.base import names
from delayq_operator.status.reasons import REASONS

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import ABSENT, condition, queue_with_code
from tests.cluster.world import RECONCILES, World, managers

if TYPE_CHECKING:
    from tests.servers import RedisServer


TEMPLATE: Final = {"spec": {"restartPolicy": "Always"}}
INVALID: Final = {"reaper": {"template": TEMPLATE}}
"""Valid by the schema, which does not check templates, and impossible to apply."""

HOUR_MS: Final = 3_600_000
EDITS: Final = 5


# --- Conditions.


def test_every_condition_that_applies_is_there_from_the_start(world: World) -> None:
    """The first status has conditions that are Unknown yet, too, with all that Kubernetes requires."""
    world.create()
    eventually(lambda: "status" in world.queue())
    body = world.queue()
    there = [entry["type"] for entry in body["status"]["conditions"]]
    assert there == [kind for kind in REASONS if kind not in {*ABSENT, "GuardAvailable", "ApiAvailable"}]
    for entry in body["status"]["conditions"]:
        assert entry["observedGeneration"] == 1
        assert REASONS[entry["type"]][entry["reason"]] == entry["status"]
        assert entry["message"]
        assert _seconds_since(entry) >= 0
    assert body["status"]["observedGeneration"] == 1
    assert condition(body, "BackendAvailable")["status"] == "Unknown"
    assert managers(body, "status") == {names.OPERATOR}


def test_pods_that_the_api_server_rejects_are_explained(world: World) -> None:
    """A quota without room for pods is in Ready, Degraded and an event."""
    quotas = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    world.cluster.rest.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    world.create()
    reported = world.until("Degraded", "True", "PodsRejected")["message"]
    assert "exceeded quota: none" in reported
    world.until("Ready", "False", "ScannersNotReady")
    eventually(lambda: "exceeded quota: none" in condition(world.queue(), "Ready")["message"])
    world.event("PodsRejected", "exceeded quota")


def _seconds_since(entry: dict[str, Any]) -> float:
    return time.time() - datetime.fromisoformat(entry["lastTransitionTime"]).timestamp()


def test_a_spec_that_cannot_be_realised_is_refused_by_path_and_nothing_new_is_no_write(world: World) -> None:
    """Accepted names the field; children stay as they are; nothing is tried again until an edit, which cures it."""
    for name in ("orders", "parcels"):
        world.start(name, reaper={"suspend": True})  # its runs are news
    ours = {child for child in world.children() if child[1].startswith("orders")}
    before = {child: world.get(*child)["metadata"]["resourceVersion"] for child in ours}
    world.edit(**INVALID, scanner={"replicas": 5})
    reported = world.until("Accepted", "False", "InvalidSpec")["message"]
    assert "spec.reaper.template.spec.restartPolicy: is the operator's own" in reported
    assert world.until("Ready", "False", "InvalidSpec")
    world.event("InvalidSpec", "spec.reaper.template")
    refused, mark = world.operator.metric(RECONCILES, result="invalid"), world.enqueue()
    # While another is edited again and again.
    world.start("others")
    for number in range(EDITS):
        world.edit("others", scanner={"replicas": number})
        _until_scanners(world, "others", number)
    # Fewer than the edits: a controller that is late with the status of a child is news, too.
    assert world.operator.metric(RECONCILES, result="invalid") < refused + EDITS / 2
    assert [event for event in world.writes(mark) if not event.name.startswith("others")] == []
    assert {child: world.get(*child)["metadata"]["resourceVersion"] for child in ours} == before
    world.edit(reaper=None)
    world.until("Accepted", "True")
    _until_scanners(world, "orders", 5)


def _until_scanners(world: World, name: str, number: int) -> None:
    eventually(lambda: world.get("deployments", f"{name}-scanner")["spec"]["replicas"] == number)


# --- What scanners say.

HANDLER: Final = """
import asyncio
async def handle(task):
    if task.payload["do"] == "fail":
        raise ValueError("failing on purpose")
    await asyncio.sleep(600)
"""
SPEC: Final[dict[str, Any]] = {
    "delivery": {"maxAttempts": 1, "leaseDurationSeconds": 600, "handlerTimeoutSeconds": 600},
    "worker": {"concurrency": 2, "drainTimeoutSeconds": 1},
    "scanner": {"replicas": 1},
}


@pytest.mark.usefixtures("process_node")
def test_what_scanners_count_and_how_safe_redis_is_and_that_it_goes(world: World, redis: RedisServer) -> None:
    """status.backlog has what is due, scheduled, in flight, dead and parked, and keeps it without Redis.

    DurabilityMet names what is wrong with Redis' settings.
    """
    with redis.client() as connection:
        connection.config_set("appendonly", "no")
    document = queue_with_code(world.cluster, world.namespace, redis, HANDLER, **SPEC)
    world.make(names.PLURAL, document)

    def reported(**expected: int) -> bool:
        backlog = world.queue().get("status", {}).get("backlog", {})
        assert {field: backlog.get(field) for field in expected} == expected, backlog
        return True

    with SyncClient(redis.url, queue=parse(document).queue) as client:
        client.schedule({"do": "hang"}, delay_ms=0, kind="push", version=2, task_id="unknown")
        for _ in range(3):
            client.schedule({"do": "fail"}, delay_ms=0)
        eventually(partial(reported, parked=1, dead=3), timeout_s=60)
        client.cancel("unknown", kind="push")
        for _ in range(2 + 4):  # as many as run at a time, and those that have to wait
            client.schedule({"do": "hang"}, delay_ms=0)
        next_due = time.time() + HOUR_MS / 1000
        for _ in range(6):
            client.schedule({"do": "hang"}, delay_ms=HOUR_MS)
    counted = {"due": 4, "scheduled": 6, "inFlight": 2, "dead": 3}
    eventually(partial(reported, **counted), timeout_s=30)
    backlog = world.queue()["status"]["backlog"]
    assert abs(datetime.fromisoformat(backlog["nextDueTime"]).timestamp() - next_due) < 30
    assert datetime.fromisoformat(backlog["oldestDueTime"]).timestamp() < time.time()
    world.until("BackendAvailable", "True", "Connected")
    assert "Set appendonly yes" in world.until("DurabilityMet", "False", "AppendOnlyOff")["message"]
    world.event("DurabilityAtRisk", "appendonly")

    redis.kill()
    world.until("BackendAvailable", "False", "Unreachable", timeout_s=30)
    # A connection that ends is the first news, and a refused one the second.
    eventually(lambda: "connection refused" in condition(world.queue(), "BackendAvailable")["message"])
    world.until("DurabilityMet", "Unknown")
    world.until("Ready", "False", "Unreachable")
    world.event("BackendUnavailable")
    assert reported(**counted)
