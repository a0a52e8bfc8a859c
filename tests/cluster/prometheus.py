"""The kinds of the Prometheus operator, as far as the API server is concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.cluster.harness.resources import found
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.rest import Object


def stub_crd(group: str, kind: str) -> Object:
    """A kind that takes anything, in place of one that we do not ship."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plural = f"{kind.lower()}s"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROMETHEUS_GROUP: Final = "monitoring.coreos.com"
PROMETHEUS_KINDS: Final = ("PodMonitor", "ServiceMonitor", "PrometheusRule")


def serve_prometheus_kinds(cluster: Cluster) -> None:
    """Install what the Prometheus operator would, as far as the API server is concerned; return when it is served."""
    for kind, path in _paths().items():
        if not found(cluster, path):
            cluster.rest.create(CRDS, stub_crd(PROMETHEUS_GROUP, kind))
    _until_listed(cluster, there=True)


def serve_no_prometheus_kinds(cluster: Cluster) -> None:
    """The opposite."""
    for path in _paths().values():
        if found(cluster, path):
            cluster.rest.delete(path)
    _until_listed(cluster, there=False)


def _paths() -> dict[str, str]:
    return {kind: f"{CRDS}/{kind.lower()}s.{PROMETHEUS_GROUP}" for kind in PROMETHEUS_KINDS}


def _until_listed(cluster: Cluster, *, there: bool) -> None:
    """Wait until objects can be listed, or cannot, and discovery, which is a moment behind, says so, too."""
    group = f"/apis/{PROMETHEUS_GROUP}/v1"
    plurals = {f"{kind.lower()}s" for kind in PROMETHEUS_KINDS}

    def settled() -> bool:
        here = {plural for plural in plurals if found(cluster, f"{group}/{plural}")}
        try:
            served = cluster.rest.get(group)["resources"]
        except Refused:  # the group is not served
            served = []
        return here == plurals & {each["name"] for each in served} == (plurals if there else set())

    eventually(settled, what=f"{PROMETHEUS_GROUP} is {'served' if there else 'gone'}")
