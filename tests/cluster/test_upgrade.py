"""From an older build to this one and back: CRD, chart, operator and pods of both, while tasks fall due."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import install_crd
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, install_rights
from tests.cluster.test_end_to_end import document
from tests.cluster.world import World, running
from tests.upgrade.baselines import Baseline, cases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.servers import RedisServer

TASKS = 600
APART_MS = 100
HANDLER = """
import os, time
from redis.asyncio import Redis
ledger = Redis.from_url(os.environ["LEDGER"])
async def handle(task):
    await ledger.rpush("ledger", f"{task.id} {time.time_ns() // 1_000_000 - task.due_ms}")
"""


@dataclass(frozen=True)
class Build:
    """All that a release has: CRD, chart, operator and image."""

    name: str
    root: Path

    @property
    def image(self) -> str:
        return f"delayq-worker:{self.name}"

    def install(self, cluster: ControlPlane, namespace: str, image: str) -> Operator:
        """As `helm upgrade` does: the CRD, then the rights, then the operator, with this image for pods."""
        install_crd(cluster, self.root / "crds" / "delayqueue.yaml")
        rights = install_rights(cluster, namespace, chart=str(self.root / "charts" / "delayq"))
        path = f"{self.root / 'operator'}:{self.root / 'worker'}"
        return Operator.start(rights, namespace, f"--worker-image={image}", PYTHONPATH=path)


NEW = Build("new", ROOT)


@pytest.fixture(params=cases())
def old(request: pytest.FixtureRequest, cluster: ControlPlane, crd: str, tmp_path: Path) -> Iterator[Build]:  # noqa: ARG001  the CRD is there first
    baseline: Baseline = request.param
    yield Build("old", baseline.unpack(tmp_path / "old", "worker", "operator", "charts", "crds"))
    install_crd(cluster)


def pods(world: World) -> dict[str, str]:
    """Image by uid, of those that stay."""
    return {
        pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"]
        for pod in world.items("pods", labelSelector="app.kubernetes.io/component in (worker,scanner)")
        if "deletionTimestamp" not in pod["metadata"]
    }


def rolled(world: World, build: Build) -> None:
    """Wait until all pods, and they are ready, have the image of a build."""
    eventually(
        lambda: set(pods(world).values()) == {build.image}, timeout_s=60, what=f"all pods are {build.name}"
    )
    world.settle()
    world.until("Ready", "True", timeout_s=60)
    world.until("Progressing", "True", "NewReplicaSetAvailable", timeout_s=60)


@contextmanager
def serving(cluster: ControlPlane, namespace: str, build: Build, image: Build) -> Iterator[World]:
    """The operator of one build, with the image of another; from when it has seen all."""
    with running(build.install(cluster, namespace, image.image)) as operator:
        world = World(cluster, operator, namespace)
        if world.there("delayqueues", "orders"):
            world.settle()
        yield world


@pytest.fixture
def node(cluster: ControlPlane, namespace: str, old: Build, tmp_path: Path) -> Iterator[ProcessNode]:
    """A node that has the images of both builds."""
    images = {build.image: build.root for build in (old, NEW)}
    with ProcessNode(cluster, namespace, tmp_path / "pods", images) as node:
        yield node


@pytest.mark.slow
@pytest.mark.usefixtures("node")
def test_an_upgrade_and_a_rollback_of_all_lose_no_task_and_restart_no_pod_without_need(
    cluster: ControlPlane, namespace: str, old: Build, redis: RedisServer
) -> None:
    """The operator first, which leaves the pods alone; then their image; then all of it back."""
    here = (cluster, namespace)
    with serving(*here, old, old) as world:
        world.make("delayqueues", document(world, redis, HANDLER))
        rolled(world, old)
        spec, before, children = world.queue()["spec"], pods(world), world.children()
        with SyncClient(redis.url, queue="orders") as client:
            ids = {
                client.schedule({}, delay_ms=number * APART_MS, task_id=f"t{number}").id
                for number in range(TASKS)
            }
    with serving(*here, NEW, old) as world:
        assert pods(world) == before
        assert world.children() == children
        assert world.queue()["spec"] == spec
    with serving(*here, NEW, NEW) as world:
        rolled(world, NEW)
    with serving(*here, old, old) as world:
        rolled(world, old)
        assert world.queue()["spec"] == spec
    with redis.client() as connection, SyncClient(redis.url, queue="orders") as client:
        eventually(lambda: not client.counts().waiting, timeout_s=TASKS * APART_MS / 1000 + 30)
        eventually(lambda: not client.counts().in_flight)
        ledger = [line.split() for line in connection.lrange("ledger", 0, -1)]
    assert sorted(task for task, _ in ledger) == sorted(ids)
    assert [late for _, late in ledger if int(late) < 0] == []
