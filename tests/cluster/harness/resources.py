"""Things that most tests need to be there: our CRD, a namespace, and what Kubernetes makes in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.rest import APPLY, Refused
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object

CRD_FILES: Final = ROOT / "crds"
CRD: Final = "delayqueues.delayq.dev"
CRD_PATH: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}"
SCHEDULE_CRD_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/delayschedules.delayq.dev"
CLUSTER_SCOPED: Final = ("cluster", "validating")
"""How the kinds begin, as far as the chart makes them."""


def install_crd(cluster: Cluster, files: Path = CRD_FILES) -> str:
    """Apply the CRDs of a file or directory, and return when DelayQueues can be listed and explained."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={files}")
    wait_served(cluster)
    if files.is_dir():
        served = partial(found, cluster, "/apis/delayq.dev/v1alpha1/delayschedules")
        eventually(served, what="DelaySchedules are served")
    return CRD


def wait_served(cluster: Cluster) -> None:
    """Return when DelayQueues can be listed and explained, once the CRD is applied."""
    # Not `kubectl wait`, which fails on a CRD without any condition yet. And Established is a moment before served.
    for path in ("/apis/delayq.dev/v1alpha1/delayqueues", "/openapi/v3/apis/delayq.dev/v1alpha1"):
        eventually(partial(found, cluster, path), what=f"{path} is served")
    # kubectl finds a category in the API server's discovery document, which follows a moment later, and keeps it in a
    # cache; api-resources renews that cache.
    listed = ("api-resources", "--categories=delayq", "--output=name")
    eventually(lambda: CRD in cluster.kubectl(*listed, check=False).stdout, what="kubectl has the category")


def make_namespace(cluster: Cluster, name: str, labels: dict[str, str] | None = None) -> None:
    """Make a namespace, and return when pods can be made in it: they need its default service account."""
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    eventually(lambda: found(cluster, account), what=f"{name} has its default service account")


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Begin to, unless it is gone already."""
    if found(cluster, f"/api/v1/namespaces/{name}"):
        cluster.rest.delete(f"/api/v1/namespaces/{name}")


def apply(cluster: Cluster, body: Object, namespace: str = "") -> Object:
    """Server-side apply of one object, in this namespace unless it names its own."""
    metadata, version, kind = body["metadata"], body["apiVersion"], body["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    where = metadata.get("namespace", "" if kind.startswith(CLUSTER_SCOPED) else namespace)
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"/namespaces/{where}" if where else ""
    path = f"{root}{scope}/{plural}/{metadata['name']}"
    return cluster.rest.patch(path, body, APPLY, fieldManager="delayq-tests", force="true")


def found(cluster: Cluster, path: str) -> bool:
    """Whether something is there, and says what: a description that is still being made is empty, see Rest.request."""
    try:
        return bool(cluster.rest.get(path))
    except Refused as error:
        if error.code == 404:
            return False
        raise


def delayqueues(namespace: str) -> str:
    """The path of a namespace's DelayQueues."""
    return f"/apis/delayq.dev/v1alpha1/namespaces/{namespace}/delayqueues"
