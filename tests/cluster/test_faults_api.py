"""The API server goes away, comes back, hangs, or has too much to do: the operator stays, and catches up."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.cluster.harness.resources import CRD, install_crd, make_namespace
from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import Operator, install_rights
from tests.cluster.world import World, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

CATCH_UP_SECONDS = 5.0


def healthy(operator: Operator) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{operator.port}/healthz", timeout=lenient(2)
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def world(control_plane: ControlPlane, kubeconfig: Path, namespace: str) -> Iterator[World]:
    operator = Operator.fork(kubeconfig, namespace).wait_ready()
    yield World(control_plane, operator, namespace)
    operator.process.stop()


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        ("killed", 5),
        pytest.param("paused", 5, marks=pytest.mark.full),
        pytest.param("killed", 90, marks=pytest.mark.full),
    ],
)
def test_the_operator_outlives_an_outage_and_catches_up(
    control_plane: ControlPlane, world: World, fault: str, seconds: float
) -> None:
    """It stays alive all the while, and what changes as soon as the API server is back is applied within 5 s."""
    for name in ("edited", "robbed"):
        world.start(name)
    pid = world.operator.process.pid
    down(control_plane, fault)
    watched(world.operator, seconds)
    back_at = up(control_plane, fault)
    world.delete("deployments", "robbed-worker")
    world.edit("edited", worker={"replicas": 3})
    world.create("new")
    eventually(lambda: caught_up(world), what="caught up", timeout_s=40)
    took = time.monotonic() - back_at
    print(f"{fault} for {seconds} s: caught up {took:.2f} s after the API server was ready")
    assert (world.operator.process.alive, world.operator.process.pid) == (True, pid)
    assert healthy(world.operator)
    assert took < lenient(CATCH_UP_SECONDS), world.operator.process.output
    control_plane.controller_manager.stop()  # started again after the test: its own watches take half a minute


def down(plane: ControlPlane, fault: str) -> None:
    if fault == "killed":
        plane.api_server.kill()
    else:
        plane.api_server.pause()


def up(plane: ControlPlane, fault: str) -> float:
    """When it was ready."""
    if fault == "killed":
        plane.api_server.start()
    else:
        plane.api_server.resume()
        plane.api_server.wait_ready()
    return time.monotonic()


def watched(operator: Operator, seconds: float) -> None:
    """Time passes, and the liveness probe is content with all of it."""
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        assert healthy(operator), operator.process.output
        time.sleep(0.5)


def caught_up(world: World) -> bool:
    assert world.there("deployments", "robbed-worker"), "deleted and not back"
    assert replicas(world, "edited-worker") == 3, "not scaled"
    assert world.there("deployments", "new-worker"), "new, and without workers"
    assert world.there("cronjobs", "new-reaper"), "new, and without a reaper"
    return True


def replicas(world: World, name: str) -> int:
    return int(world.get("deployments", name)["spec"]["replicas"])


def test_what_was_deleted_before_a_410_is_noticed(
    control_plane: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """A restarted API server has no earlier versions: kopf lists again, which shows no deletion."""
    with running(Operator.fork(kubeconfig, namespace, "--log-level=debug")) as operator:
        world = World(control_plane, operator, namespace)
        for name in ("robbed", "dropped"):
            world.start(name)
        operator.process.pause()
        world.delete("deployments", "robbed-worker")
        world.delete("delayqueues", "dropped")
        control_plane.api_server.kill()
        control_plane.api_server.start()
        operator.process.resume()
        for kind in ("deployments", "delayqueues"):
            operator.process.wait_line(f"Restarting the watch-stream for {kind}", timeout_s=lenient(20))
        eventually(lambda: world.there("deployments", "robbed-worker"), what="repaired")
        eventually(lambda: operator.metric("delayq_operator_queues") == 1, what="forgotten")


@pytest.mark.xdist_group("bare")
def test_a_crd_that_was_deleted_and_made_again_is_served_again(plane: ControlPlane) -> None:
    """kopf gives up when DelayQueues are not served any more; the operator does not."""
    install_crd(plane)
    namespace = f"crd-{uuid4().hex[:8]}"
    make_namespace(plane, namespace)
    with running(Operator.fork(install_rights(plane, namespace), namespace)) as operator:
        world = World(plane, operator, namespace)
        world.start("before")
        plane.kubectl("delete", "crd", CRD, "--timeout=30s")
        operator.process.wait_line("kopf_stopped")
        install_crd(plane)
        world.create("after")
        eventually(lambda: world.there("deployments", "after-worker"), what="served again")
        assert healthy(operator)
