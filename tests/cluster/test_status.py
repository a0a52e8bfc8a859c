"""Status says what is: every condition from the first visit on, scanners' numbers, and no write without news."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq import SyncClient
from delayq.contract import parse
from delayq_operator.base import names
from delayq_operator.status.long_parked import PARKED_SECONDS
from delayq_operator.status.reasons import REASONS
from delayq_operator.status.unready import START_SECONDS

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import ABSENT, condition, queue
from tests.cluster.world import RECONCILES, World, managers
from tests.processes import Process, delayq
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TEMPLATE: Final = {"spec": {"restartPolicy": "Always"}}
INVALID: Final = {"reaper": {"template": TEMPLATE}}
"""Fits the schema, which knows nothing of what is in a template, and cannot be realised."""

SECOND_S: Final = 1.0
HOUR_MS: Final = 3_600_000
EDITS: Final = 10


# --- Conditions.


def test_every_condition_that_applies_is_there_from_the_start(world: World) -> None:
    """The first status has conditions that are Unknown yet, too, with all that Kubernetes requires."""
    world.create()
    eventually(lambda: "status" in world.queue())
    body = world.queue()
    there = [entry["type"] for entry in body["status"]["conditions"]]
    assert there == [kind for kind in REASONS if kind not in {*ABSENT, "GuardAvailable"}]
    for entry in body["status"]["conditions"]:
        assert entry["observedGeneration"] == 1
        assert REASONS[entry["type"]][entry["reason"]] == entry["status"]
        assert entry["message"]
        assert _seconds_since(entry) >= 0
    assert body["status"]["observedGeneration"] == 1
    assert condition(body, "BackendAvailable")["status"] == "Unknown"
    assert managers(body, "status") == {names.OPERATOR}


def test_pods_that_the_api_server_rejects_are_explained(world: World) -> None:
    """A quota without room for pods is in Ready, Degraded and an event; a Job that has no pod is named."""
    quotas = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    world.cluster.rest.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    world.create()
    told = world.until("Degraded", "True", "PodsRejected")["message"]
    assert "exceeded quota: none" in told
    world.until("Ready", "False", "ScannersNotReady")
    eventually(lambda: "exceeded quota: none" in condition(world.queue(), "Ready")["message"])
    world.event("PodsRejected", "exceeded quota")
    world.edit(deletionPolicy="Delete")
    eventually(lambda: world.queue()["metadata"].get("finalizers"), what="the finalizer")
    world.delete(names.PLURAL, "orders")
    told = world.until("Degraded", "True", "EraseFailed", timeout_s=60)["message"]
    assert "Job orders-erase has no pod" in told
    world.edit(deletionPolicy="Retain")


def test_a_paused_rollout_is_reported_and_a_transition_has_its_own_time(world: World) -> None:
    """Progressing does not call the pods up to date; lastTransitionTime moves when a status does."""
    world.start()
    first = world.until("Degraded", "False")
    eventually(lambda: _seconds_since(first) > SECOND_S, what="a later second")
    world.edit(worker={"replicas": 2})
    assert world.until("Degraded", "False") == first | {"observedGeneration": 2}
    world.kubectl("rollout", "pause", "deployment/orders-worker")
    world.until("Progressing", "Unknown", "DeploymentPaused")
    told = world.until("Degraded", "True", "RolloutPaused")
    assert told["lastTransitionTime"] > first["lastTransitionTime"]
    world.kubectl(*told["message"].split("`")[1].split()[1:])
    world.until("Degraded", "False")


def _seconds_since(entry: dict[str, Any]) -> float:
    return time.time() - datetime.fromisoformat(entry["lastTransitionTime"]).timestamp()


def test_a_spec_that_cannot_be_realised_is_refused_by_path_and_nothing_new_is_no_write(world: World) -> None:
    """Accepted names the field; children stay as they are; nothing is tried again until an edit, which cures it."""
    for name in ("orders", "parcels"):
        world.start(name, reaper={"suspend": True})  # its runs are news
    ours = {child for child in world.children() if child[1].startswith("orders")}
    before = {child: world.get(*child)["metadata"]["resourceVersion"] for child in ours}
    world.edit(**INVALID, scanner={"replicas": 5})
    told = world.until("Accepted", "False", "InvalidSpec")["message"]
    assert "spec.reaper.template.spec.restartPolicy: is the operator's own" in told
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


@dataclass
class Shop:
    """A DelayQueue on a real Redis, and a real scanner in the place of its pod."""

    world: World
    redis: RedisServer
    dir: Path
    address: str = field(
        default_factory=lambda: (
            f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"
        )
    )
    processes: list[Process] = field(default_factory=list)

    @property
    def spec(self) -> dict[str, Any]:
        return {
            "redis": {"standalone": {"host": "127.0.0.1", "port": self.redis.port}},
            "handler": {"python": {"callable": "shop:handle"}},
            "delivery": {"maxAttempts": 1, "leaseDurationSeconds": 600, "handlerTimeoutSeconds": 600},
            "worker": {"drainTimeoutSeconds": 1},
            "scanner": {"replicas": 1},
            "reaper": {"suspend": True},  # its first run is news
        }

    def open(self) -> None:
        self.world.start(**self.spec)
        document = self.world.get("configmaps", "orders-config")["data"]["queue.yaml"]
        (self.dir / "queue.yaml").write_text(document)
        self.scan()
        self.world.pretend_ready("scanner", self.address)

    def scan(self) -> Process:
        """Start the scanner, or start it again."""
        for process in self.processes:
            process.stop()
        options = ("--host", self.address, "--port", "8080", "--config", str(self.dir / "queue.yaml"))
        self.processes.append(delayq("scanner", *options))
        self.processes[-1].wait_http(f"http://{self.address}:8080/readyz")
        return self.processes[-1]

    def client(self) -> SyncClient:
        return SyncClient(self.redis.url, queue=parse(queue(**self.spec)).queue)

    def work(self, *, hangs: int, fails: int) -> None:
        """Run a worker until it has done what it can, and kill it: what hangs stays in flight.

        Redis tells when that is. What the worker prints of a failure comes before the task is buried, and whoever is
        killed in between leaves it in flight.
        """
        (self.dir / "shop.py").write_text(HANDLER)
        worker = delayq(
            *("worker", "--port", "0", "--config", str(self.dir / "queue.yaml")),
            env={"PYTHONPATH": str(self.dir)},
        )
        try:
            eventually(lambda: worker.output.count("handling") == hangs + fails, what="all are handled")
            eventually(lambda: self.counted() == (hangs, fails), what="what fails is buried")
        finally:
            worker.kill()

    def counted(self) -> tuple[int, int]:
        """What Redis has in flight, and dead."""
        with self.client() as client:
            counts = client.counts()
        return counts.in_flight, counts.dead

    @property
    def backlog(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.queue().get("status", {}).get("backlog", {})
        return found

    def close(self) -> None:
        for process in self.processes:
            process.stop()
        self.redis.stop()


HANDLER: Final = """
import asyncio
async def handle(task):
    print("handling", flush=True)
    if task.payload["do"] == "fail":
        raise ValueError("failing on purpose")
    await asyncio.sleep(600)
"""


@pytest.fixture
def shop(world: World, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(world, RedisServer.start(PREFERRED, dir=tmp_path / "redis"), tmp_path)
    yield shop
    shop.close()


def test_numbers_are_what_scanners_count(shop: Shop) -> None:
    """status.backlog has what is due, scheduled, in flight, dead and parked."""
    shop.open()
    world = shop.world
    with shop.client() as client:
        client.schedule({"do": "hang"}, delay_ms=0, kind="push", version=2, task_id="unknown")
        for number in range(5):
            client.schedule({"do": "hang" if number < 2 else "fail"}, delay_ms=0)
        shop.work(hangs=2, fails=3)
        eventually(lambda: shop.backlog.get("parked") == 1, timeout_s=30, what="the task is parked")
        client.cancel("unknown", kind="push")
        for _ in range(4):
            client.schedule({"do": "hang"}, delay_ms=0)
        next_due = time.time() + 3600
        for _ in range(6):
            client.schedule({"do": "hang"}, delay_ms=HOUR_MS)
        expected = {"due": 4, "scheduled": 6, "inFlight": 2, "dead": 3}

        def told() -> bool:
            assert (found := {field: shop.backlog.get(field) for field in expected}) == expected, found
            return True

        eventually(told, timeout_s=30)
        assert abs(datetime.fromisoformat(shop.backlog["nextDueTime"]).timestamp() - next_due) < 30
        assert datetime.fromisoformat(shop.backlog["oldestDueTime"]).timestamp() < time.time()
        assert world.until("BackendAvailable", "True", "Connected")


@pytest.mark.full
def test_tasks_that_are_parked_for_two_minutes_are_a_fault_that_names_their_kinds(shop: Shop) -> None:
    shop.open()
    with shop.client() as client:
        client.schedule({"do": "hang"}, delay_ms=0, kind="push", version=2, task_id="unknown")
        client.schedule({"do": "fail"}, delay_ms=0)
        shop.work(hangs=0, fails=1)
        said = shop.world.until("Degraded", "True", "TasksParked", timeout_s=PARKED_SECONDS + 30)["message"]
        assert "kind or version of 1 task: push version 2 (1 task, the oldest due 20" in said
        shop.world.event("TasksParked", "push version 2")
        client.cancel("unknown", kind="push")
        shop.world.until("Degraded", "False", timeout_s=30)


def test_how_safe_redis_is_then_it_goes_and_then_the_scanner(shop: Shop) -> None:
    """DurabilityMet names what is wrong with Redis' settings, and clears when they are right.

    Without Redis BackendAvailable is False; without a scanner nobody knows, and the last numbers keep their time.
    """
    shop.open()
    world = shop.world
    told = world.until("DurabilityMet", "False", "AppendOnlyOff", timeout_s=30)
    assert "Set appendonly yes" in told["message"]
    world.event("DurabilityAtRisk", "appendonly")
    with shop.redis.client() as redis:
        redis.config_set("appendonly", "yes")
        redis.config_set("maxmemory-policy", "allkeys-lru")
        shop.scan()  # else it looks once a minute
        assert "noeviction" in world.until("DurabilityMet", "False", "Evicts", timeout_s=30)["message"]
        redis.config_set("maxmemory-policy", "noeviction")
    shop.scan()
    world.until("DurabilityMet", "True", "NoRiskFound", timeout_s=30)
    with shop.client() as client:
        client.schedule({"do": "hang"}, delay_ms=HOUR_MS)
    eventually(lambda: shop.backlog.get("scheduled") == 1, timeout_s=30)

    shop.redis.kill()
    world.until("BackendAvailable", "False", "Unreachable", timeout_s=30)
    # A connection that ends is the first news, and a refused one the second.
    eventually(lambda: "connection refused" in condition(world.queue(), "BackendAvailable")["message"])
    world.until("DurabilityMet", "Unknown")
    world.until("Ready", "False", "Unreachable")
    world.event("BackendUnavailable")
    assert shop.backlog["scheduled"] == 1
    observed = shop.backlog["observedTime"]
    shop.processes[-1].stop()
    (pod,) = world.pods("scanner")
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.cluster.rest.patch(f"{world.path('pods', pod['metadata']['name'])}/status", {"status": unready})
    world.until("BackendAvailable", "Unknown", "MetricsUnavailable", timeout_s=40)
    world.until("ObjectiveMet", "Unknown")
    assert (shop.backlog["scheduled"], shop.backlog["observedTime"]) == (1, observed)


@pytest.mark.full
def test_a_queue_that_never_becomes_ready_has_an_event_after_a_minute(world: World) -> None:
    """Whatever happens to others meanwhile, and not before pods had the time to start."""
    world.create()
    world.settle()
    deadline = time.monotonic() + START_SECONDS - 5
    while time.monotonic() < deadline:
        world.annotate(nudged=str(time.monotonic()))
        time.sleep(1)
    assert world.events("NotReady") == []
    world.event("NotReady", "ScannersNotReady")
