"""The operator is killed, again and again, or is just not there: what is wanted comes true in the end, and once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from delayq_operator.base import names
from delayq_operator.cache.resource import Resource

from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator
from tests.cluster.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

SEED: Final = 4
QUEUES, STEPS, KILLS = 25, 80, 2
MANAGED: Final = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"


def start(kubeconfig: Path, namespace: str) -> Operator:
    """Without a Lease, for which each new one would wait 15 s."""
    return Operator.fork(kubeconfig, namespace, "--no-leader-election")


@pytest.fixture
def world(cluster: ControlPlane, kubeconfig: Path, namespace: str) -> Iterator[World]:
    world = World(cluster, start(kubeconfig, namespace).wait_ready(), namespace)
    yield world
    world.operator.process.stop()


@dataclass
class Users:
    """People who create, edit and delete DelayQueues, and people who delete what is not theirs."""

    world: World
    draw: random.Random
    live: set[str] = field(default_factory=set)
    edits: Counter[str] = field(default_factory=Counter)
    made: int = 0

    def step(self) -> None:
        moves = [self.create] * (3 if self.made < QUEUES else 0)
        moves += [self.edit, self.edit, self.rob, self.delete] if self.live else []
        self.draw.choice(moves)()

    def create(self) -> None:
        name = f"queue-{self.made}"
        self.made += 1
        self.world.create(name, deletionPolicy=self.policy())
        self.live.add(name)

    def edit(self) -> None:
        name = self.any()
        self.edits[name] += 1
        worker = {"replicas": self.draw.randint(0, 4), "concurrency": self.draw.randint(1, 9)}
        network = {"enabled": self.draw.random() < 0.5}
        self.world.edit(name, worker=worker, networkPolicy=network, deletionPolicy=self.policy())

    def rob(self) -> None:
        """Delete a child, if it is there yet."""
        plural, suffix = self.draw.choice(
            [("deployments", "worker"), ("configmaps", "config"), ("cronjobs", "reaper")]
        )
        with suppress(Refused):
            self.world.delete(plural, f"{self.any()}-{suffix}")

    def delete(self) -> None:
        name = self.any()
        self.live.discard(name)
        self.world.delete(names.PLURAL, name)

    def any(self) -> str:
        return self.draw.choice(sorted(self.live))

    def policy(self) -> str:
        return self.draw.choice(["Retain", "Delete"])


def test_after_many_kills_at_any_time_all_is_right_in_the_end(
    control_plane: ControlPlane, world: World, kubeconfig: Path
) -> None:
    """Each DelayQueue has exactly its children, a deleted one none; no rollout ran twice; nothing is written."""
    users = Users(world, random.Random(SEED))
    kill_at = set(users.draw.sample(range(50, STEPS), KILLS))
    for step in range(STEPS):
        users.step()
        if step in kill_at:
            world.operator.process.kill()
            world.operator = start(kubeconfig, world.namespace)  # while users go on
    worked_from = time.monotonic()
    world.operator.wait_ready()
    eventually(
        lambda: only_these(world, users.live), what="deleted ones are gone", timeout_s=120, every_s=0.5
    )
    eventually(lambda: settled(world), what="nothing to do", timeout_s=60, every_s=0.5)
    print(
        f"{users.made} made, {len(users.live)} left; all right {time.monotonic() - worked_from:.1f} s after the last"
    )
    for name in users.live:
        body = Resource(world.queue(name))
        assert body.finalizers == ([names.ERASE_FINALIZER] if body.erases else [])
    for load in world.items("deployments", labelSelector=MANAGED):
        name = load["metadata"]["labels"][names.QUEUE_LABEL]
        assert load["metadata"]["generation"] <= 1 + 2 * users.edits[name], load["metadata"]["name"]
    eventually(lambda: idle(control_plane, world), what="it is idle", every_s=0.1, timeout_s=30)
    assert world.operator.metric("delayq_operator_reconciles_total", result="bug") == 0


def idle(plane: ControlPlane, world: World) -> bool:
    """Whether it writes nothing for three seconds, not even events."""
    mark = plane.audit_mark()
    time.sleep(3)
    user = f"system:serviceaccount:{world.namespace}:delayq-operator"
    written = [e for e in plane.audit_events(mark, user=user) if e.verb not in {"get", "list", "watch"}]
    assert written == []
    return True


def only_these(world: World, live: set[str]) -> bool:
    """Whether there are no DelayQueues but these, and no children of others."""
    pending = {"labelSelector": f"{names.COMPONENT_LABEL}=erase", "fieldSelector": "status.phase=Pending"}
    for pod in world.items("pods", **pending):  # which nothing runs: they end well, and may be gone by now
        with suppress(Refused):
            path = f"{world.path('pods', pod['metadata']['name'])}/status"
            world.cluster.rest.patch(path, {"status": {"phase": "Succeeded"}})
    bodies = world.items(names.PLURAL)
    assert {body["metadata"]["name"] for body in bodies} == live
    uids = {body["metadata"]["uid"] for body in bodies}
    for kind in names.CHILDREN:
        for item in world.items(kind.plural, labelSelector=MANAGED):
            owners = item["metadata"].get("ownerReferences", ())
            of = {owner["uid"] for owner in owners if owner["kind"] == "DelayQueue"}
            assert of <= uids, f"{kind.kind} {item['metadata']['name']}"
    return True


def settled(world: World) -> bool:
    """Whether each DelayQueue has its children, and they are what its last edit asked for."""
    there = world.children()
    for body in world.items(names.PLURAL):
        name, spec = body["metadata"]["name"], body["spec"]
        loads = {("deployments", f"{name}-{role}") for role in ("worker", "scanner")}
        policy = {("networkpolicies", f"{name}-delayq")}
        wanted = loads | {("configmaps", f"{name}-config"), ("cronjobs", f"{name}-reaper")}
        assert wanted <= there, name
        assert bool(policy & there) is spec.get("networkPolicy", {}).get("enabled", False), name
        worker = world.get("deployments", f"{name}-worker")["spec"]["replicas"]
        assert worker == spec["worker"]["replicas"], name
        document = yaml.safe_load(world.get("configmaps", f"{name}-config")["data"]["queue.yaml"])
        concurrency = document["spec"].get("worker", {}).get("concurrency")
        assert concurrency in (None, spec["worker"]["concurrency"]), name
    return True


def test_an_erasing_whose_delayqueue_is_there_again_is_stopped(world: World, kubeconfig: Path) -> None:
    """A finalizer taken away by hand leaves the Job that erases: it must not erase the tasks of the next DelayQueue."""
    world.create(deletionPolicy="Delete")
    eventually(lambda: Resource(world.queue()).finalizers == [names.ERASE_FINALIZER])
    world.delete(names.PLURAL, "orders")
    eventually(lambda: world.there("jobs", "orders-erase"))
    world.operator.process.kill()
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": None}})
    eventually(lambda: not world.there(names.PLURAL, "orders"))
    world.create()
    world.operator = start(kubeconfig, world.namespace).wait_ready()
    eventually(lambda: not world.there("jobs", "orders-erase"))
    eventually(lambda: world.there("deployments", "orders-worker"))
