"""What tests on Kubernetes ask for: a control plane for each pytest worker, a namespace for each test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.cluster.chart import serve_prometheus_kinds
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import CRD, delete_namespace, install_crd, make_namespace
from tests.cluster.world import World, serving
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.operator import Operator
FOREIGN = "DELAYQ_TEST_KUBECONFIG"
"""Names a kubeconfig whose cluster is used instead of one of our own; what tests make there, they delete."""
RIGHTS = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster to test on: ask for `control_plane` instead to stop its servers or to read its audit log."""
    directory = tmp_path_factory.mktemp("cluster")
    if given := os.environ.get(FOREIGN):
        foreign = Cluster(directory, Path(given).absolute())
        yield foreign
        foreign.close()
        return
    plane = ControlPlane.start(directory)
    yield plane
    plane.stop()


@pytest.fixture
def control_plane(cluster: Cluster) -> Iterator[ControlPlane]:
    """Our own control plane, all of it running."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip(
            f"{FOREIGN} names the cluster: its servers are not ours to stop, nor its audit log to read"
        )
    yield cluster
    cluster.mend()


class Strict(ControlPlane):
    """A control plane as careful administrators have it."""

    def _api_server(self) -> list[str]:
        plugins = "OwnerReferencesPermissionEnforcement"
        return [*super()._api_server(), f"--enable-admission-plugins={plugins}"]


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A second control plane, with the Prometheus operator's kinds, for tests that install and remove our CRD.

    Mark them with xdist_group("bare"): then there is one, and not one for each pytest worker.
    """
    plane = Strict.start(tmp_path_factory.mktemp("bare"))
    serve_prometheus_kinds(plane)
    yield plane
    plane.stop()


@pytest.fixture
def plane(bare: ControlPlane) -> Iterator[ControlPlane]:
    """The same; what belongs to the whole cluster goes after the test."""
    yield bare
    for release in json.loads(bare.helm("list", "--all-namespaces", "--output=json").stdout):
        bare.helm("uninstall", release["name"], f"--namespace={release['namespace']}", "--no-hooks")
    bare.kubectl("delete", RIGHTS, "--selector=app.kubernetes.io/name=delayq")  # applied without Helm
    bare.kubectl("delete", "crd", CRD, "--ignore-not-found")
    bare.kubectl("delete", "namespace", "shop", "delayq-system", "--ignore-not-found")  # which pages name


@pytest.fixture(scope="session")
def crd(cluster: Cluster) -> str:
    """Our CustomResourceDefinition, applied and served; its name."""
    return install_crd(cluster)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    name = f"test-{uuid4().hex[:8]}"
    make_namespace(cluster, name)
    yield name
    if isinstance(cluster, ControlPlane):
        cluster.mend()  # before anything is asked of it
    delete_namespace(cluster, name)


@pytest.fixture
def process_node(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[ProcessNode]:
    """Runs the pods of the namespace as processes of this host: tests that need more have a kubelet to themselves."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip(f"{FOREIGN} names the cluster: it has nodes of its own")
    with ProcessNode(cluster, namespace, tmp_path / "pods") as node:
        yield node


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis as production has it."""
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", appendonly=True)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def operator(cluster: Cluster, crd: str) -> Iterator[Operator]:  # noqa: ARG001  the CRD is installed
    """One operator for all tests of a module, with the chart's rights, for all namespaces."""
    with serving(cluster) as operator:
        yield operator


@pytest.fixture
def world(cluster: Cluster, operator: Operator, namespace: str) -> World:
    """The test's namespace, which the operator serves."""
    return World(cluster, operator, namespace)
