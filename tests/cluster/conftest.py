"""What tests on Kubernetes ask for: a control plane for each pytest worker, a namespace for each test."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import (
    CRD,
    CRD_PATH,
    SCHEDULE_CRD_PATH,
    delayqueues,
    delete_namespace,
    found,
    install_crd,
    make_namespace,
)
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import install_rights
from tests.cluster.prometheus import serve_no_prometheus_kinds, serve_prometheus_kinds
from tests.cluster.world import World, serving
from tests.forking import forking
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.operator import Operator
RIGHTS = (
    *(f"/apis/rbac.authorization.k8s.io/v1/{each}" for each in ("clusterroles", "clusterrolebindings")),
    *(
        f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{each}"
        for each in ("ies", "ybindings")
    ),
)


@pytest.fixture(scope="session")
def forks() -> Iterator[None]:
    """Of operators, of pods on a ProcessNode, and of each ForkedPlugin."""
    plugin = ("root", "status", "suspending", "report", "cron", "passed")
    commands = (f"delayq_operator.kubectl.{each}" for each in plugin)
    with forking("delayq_operator.runtime.cli", *commands, "tests.preloaded"):
        yield


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, forks: None) -> Iterator[ControlPlane]:  # noqa: ARG001
    """The cluster to test on: ask for `control_plane` instead to stop its servers."""
    plane = ControlPlane.start(tmp_path_factory.mktemp("cluster"))
    yield plane
    plane.stop()


@pytest.fixture
def control_plane(cluster: ControlPlane) -> Iterator[ControlPlane]:
    """All of it running, before and after."""
    yield cluster
    cluster.repair()


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the Prometheus operator's kinds and without our CRD, to install and remove the chart.

    Mark its tests with xdist_group("bare"): what belongs to the whole cluster is moved out of the way of them alone.
    """
    remove_delayq(control_plane)
    serve_prometheus_kinds(control_plane)
    yield control_plane
    remove_delayq(control_plane)


@pytest.fixture
def monitors(cluster: ControlPlane) -> Iterator[None]:
    """The kinds of the Prometheus operator, as the test begins."""
    serve_prometheus_kinds(cluster)
    yield
    serve_no_prometheus_kinds(cluster)


def remove_delayq(plane: ControlPlane) -> None:
    """What belongs to the whole cluster: of releases, and of rights that were applied without Helm."""
    for path in RIGHTS:
        plane.rest.delete(path, labelSelector="app.kubernetes.io/name=delayq")
    for name in ("shop", "bank", "delayq-system"):  # which pages name
        delete_namespace(plane, name)
        # No kubelet is left that ends its pods; the garbage collection of pods takes a minute.
        plane.rest.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
        eventually(partial(gone, plane, f"/api/v1/namespaces/{name}"), timeout_s=60, what=f"{name} is gone")
    if found(plane, CRD_PATH):
        for body in plane.rest.items("/apis/delayq.dev/v1alpha1/delayqueues"):
            path = f"{delayqueues(body['metadata']['namespace'])}/{body['metadata']['name']}"
            plane.rest.patch(path, {"metadata": {"finalizers": None}})
    for crd in (CRD_PATH, SCHEDULE_CRD_PATH):
        if found(plane, crd):
            plane.rest.delete(crd)
            eventually(partial(gone, plane, crd), timeout_s=60, what="the CRD is gone")


def gone(plane: ControlPlane, path: str) -> bool:
    return not found(plane, path)


@pytest.fixture
def crd(cluster: ControlPlane) -> str:
    """Our CustomResourceDefinition, applied and served; its name."""
    return CRD if found(cluster, CRD_PATH) else install_crd(cluster)


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    name = f"test-{uuid4().hex[:8]}"
    make_namespace(cluster, name)
    yield name
    cluster.repair()  # before anything is asked of it
    delete_namespace(cluster, name)


@pytest.fixture
def kubeconfig(cluster: ControlPlane, crd: str, namespace: str) -> Path:  # noqa: ARG001  the CRD is installed
    """Of an operator of the test's own, with the chart's rights in its namespace."""
    return install_rights(cluster, namespace)


@pytest.fixture
def process_node(cluster: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[ProcessNode]:
    """Runs the pods of the namespace as processes of this host: tests that need more have a kubelet to themselves."""
    with ProcessNode(cluster, namespace, tmp_path / "pods") as node:
        yield node


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis as production has it."""
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", appendonly=True)
    yield server
    server.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests without the shared operator come last: each of them stops it, and a start takes seconds of a core.

    The full variants fill an API server for minutes each: one after another, and with more time.
    """
    items.sort(key=_stops_operator)
    for item in items:
        if "tests/cluster/" in item.nodeid and item.get_closest_marker("full"):
            item.add_marker(pytest.mark.timeout(1800))
            item.add_marker(pytest.mark.xdist_group("full"))


def _stops_operator(item: pytest.Item) -> bool:
    asked = getattr(item, "fixturenames", ())
    return "cluster" in asked and "shared" not in asked


class Shared:
    """The operator for all namespaces that tests share, with the chart's rights."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster, self._running = cluster, ExitStack()
        self._operator: Operator | None = None

    def get(self) -> Operator:
        """Running."""
        if self._operator is None or not self._operator.process.alive:
            self.stop()
            self._operator = self._running.enter_context(serving(self._cluster))
        return self._operator

    def stop(self) -> None:
        self._running.close()
        self._operator = None


@pytest.fixture(scope="session")
def shared(cluster: ControlPlane) -> Iterator[Shared]:
    shared = Shared(cluster)
    yield shared
    shared.stop()


@pytest.fixture(autouse=True)
def undisturbed(request: pytest.FixtureRequest) -> None:
    """Without the shared operator, where a test has one of its own or none."""
    if _stops_operator(request.node):
        request.getfixturevalue("shared").stop()


@pytest.fixture
def operator(shared: Shared, crd: str) -> Operator:  # noqa: ARG001  the CRD is installed
    """An operator for all namespaces."""
    return shared.get()


@pytest.fixture
def world(cluster: ControlPlane, operator: Operator, namespace: str) -> World:
    """The test's namespace, which the operator serves."""
    return World(cluster, operator, namespace)
