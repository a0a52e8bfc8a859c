"""Thousands of objects in one namespace: others are served in the usual time, and the operator's memory is bounded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
import yaml

from tests.cluster.harness.resources import delayqueues, delete_namespace, make_namespace
from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.world import World, installed, running
from tests.offline.chart import CHART

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.processes import Process

PAYLOAD: Final = f'"{"x" * 65_000}"'
LIMIT_MIB: Final = float(
    str(yaml.safe_load((CHART / "values.yaml").read_text())["resources"]["limits"]["memory"]).removesuffix(
        "Mi"
    )
)


def schedule(name: str) -> dict[str, Any]:
    """A schedule that is nearly as large as one can be."""
    task = {"kind": "report", "payload": PAYLOAD}
    return {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelaySchedule",
        "metadata": {"name": name},
        "spec": {"queueRef": {"name": "absent"}, "everySeconds": 3600, "task": task},
    }


@pytest.fixture
def crowded(cluster: ControlPlane) -> Iterator[str]:
    name = f"crowd-{uuid4().hex[:8]}"
    make_namespace(cluster, name)
    yield name
    delete_namespace(cluster, name)


def fill(cluster: ControlPlane, namespace: str, count: int) -> None:
    path = delayqueues(namespace).replace("delayqueues", "delayschedules")
    with ThreadPoolExecutor(8) as pool:
        for made in [
            pool.submit(cluster.rest.create, path, schedule(f"s-{number}")) for number in range(count)
        ]:
            made.result()


def huge(namespace: str, number: int) -> dict[str, dict[str, Any]]:
    """Objects with the operator's labels, of about a megabyte each in the API server's store, by path."""
    metadata = {
        "name": f"huge-{number}",
        "labels": {"app.kubernetes.io/managed-by": "delayq-operator", "delayq.dev/queue": f"huge-{number}"},
    }
    container = {"name": "c", "image": "x", "env": [{"name": f"V{each}"} for each in range(20_000)]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"template": {"spec": pod}}
    ports = [{"port": 1 + each % 65_000} for each in range(60_000)]
    metrics, batch = f"/api/v1/namespaces/{namespace}", f"/apis/batch/v1/namespaces/{namespace}"
    network = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    never = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job}}
    secrets = [{"name": f"s{each:06d}{'q' * 200}"} for each in range(4_000)]
    return {
        f"{metrics}/configmaps": {"metadata": metadata, "data": {"a": "z" * 1_000_000}},
        f"{metrics}/serviceaccounts": {"metadata": metadata, "imagePullSecrets": secrets},
        f"{batch}/jobs": {"metadata": metadata, "spec": {"suspend": True, **job}},
        f"{batch}/cronjobs": {"metadata": metadata, "spec": never},
        network: {"metadata": metadata, "spec": {"podSelector": {}, "ingress": [{"ports": ports}]}},
    }


def peak_mib(process: Process) -> float:
    """The most memory that it has had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.full)])
def test_large_schedules_of_one_namespace_bound_memory_and_leave_others_alone(
    cluster: ControlPlane, namespace: str, crowded: str, count: int
) -> None:
    """While they are made, once they are there, and for an operator that starts then."""
    with installed(cluster) as start:
        with running(start()) as operator:
            world = World(cluster, operator, namespace)
            began = time.monotonic()
            fill(cluster, crowded, count)
            print(f"{count} schedules of 64 KiB in {time.monotonic() - began:.0f} s")
            served(world, "beside")
            print(f"peak RSS while they come: {peak_mib(operator.process):.0f} MiB")
            assert peak_mib(operator.process) < LIMIT_MIB
        with running(start()) as operator:
            served(World(cluster, operator, namespace), "afterwards")
            eventually(lambda: operator.metric("delayq_operator_workqueue_depth") == 0, timeout_s=60)
            print(f"peak RSS of one that starts: {peak_mib(operator.process):.0f} MiB")
            assert peak_mib(operator.process) < LIMIT_MIB


@pytest.mark.usefixtures("crd")
@pytest.mark.full  # the API server needs minutes to store them
@pytest.mark.parametrize("count", [20, 60])
def test_huge_objects_with_the_labels_of_children_leave_memory_bounded(
    cluster: ControlPlane, namespace: str, crowded: str, count: int
) -> None:
    """Any client can set the labels, and an operator that starts lists all of these objects."""
    with ThreadPoolExecutor(4) as pool:
        made = [
            pool.submit(cluster.rest.create, path, body)
            for number in range(count)
            for path, body in huge(crowded, number).items()
        ]
        for each in made:
            each.result()
    with installed(cluster) as start, running(start()) as operator:
        served(World(cluster, operator, namespace), "beside")
        eventually(lambda: operator.metric("delayq_operator_workqueue_depth") == 0, timeout_s=60)
        print(f"peak RSS of one that starts: {peak_mib(operator.process):.0f} MiB")
        assert peak_mib(operator.process) < LIMIT_MIB


def served(world: World, name: str) -> None:
    """A new DelayQueue of another namespace has its Deployment at once."""
    began = time.monotonic()
    world.create(name)
    eventually(lambda: world.there("deployments", f"{name}-worker"), timeout_s=60, every_s=0.05)
    took = time.monotonic() - began
    print(f"{name}: a Deployment after {took:.2f} s")
    assert took < lenient(5.0)
