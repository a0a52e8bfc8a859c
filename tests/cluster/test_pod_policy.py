"""What the chart's policy lets the operator change of pods: a worker's deletion cost. By the API server's own word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from delayq_operator.base import names

from tests.cluster.harness.rest import APPLY, STRATEGIC, Refused, Rest
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import install_rights
from tests.cluster.world import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster

COST: Final = names.DELETION_COST
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
IMAGE: Final = {"spec": {"containers": [{"name": "x", "image": "evil"}]}}

Body = dict[str, Any]


class Pods:
    """Pods of a namespace, made by an administrator and changed by the operator's ServiceAccount."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.admin = cluster.rest
        self.rest = Rest(install_rights(cluster, namespace))
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.policy = f"{POLICIES}/delayq-operator.{namespace}"
        # Without the right to delete a pod, the API server would refuse an owner by itself.
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "delete"}
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.admin.create(f"{rbac}/roles", {"metadata": {"name": "delete"}, "rules": rules})
        binding = {"metadata": {"name": "delete"}, "roleRef": role, "subjects": subjects}
        self.admin.create(f"{rbac}/rolebindings", binding)
        self.make("probe")
        eventually(lambda: self.refusal("probe", annotated(now=uuid4().hex)) != "", what="the policy counts")

    def make(self, name: str, component: str = "worker") -> None:
        labels = {names.COMPONENT_LABEL: component, "app": "shop"}
        metadata = {"name": name, "labels": labels, "annotations": {"theirs": "1"}, "finalizers": ["a.b/c"]}
        containers = [{"name": "x", "image": "shop", "env": [{"name": "A", "value": "1"}]}]
        self.admin.create(self.path, {"metadata": metadata, "spec": {"containers": containers}})

    def refusal(self, name: str, change: Body) -> str:
        """What the API server says against a strategic merge patch; nothing if it is done."""
        try:
            self.rest.patch(f"{self.path}/{name}", change, STRATEGIC)
        except Refused as error:
            return str(error)
        return ""


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Iterator[Pods]:
    pods = Pods(cluster, namespace)
    yield pods
    pods.rest.close()
    for pod in pods.admin.items(pods.path):
        pods.admin.patch(f"{pods.path}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})


def annotated(**annotations: str | None) -> Body:
    return {"metadata": {"annotations": annotations}}


CHANGES: Final[tuple[tuple[Body, str], ...]] = (
    (IMAGE, "does not change what a pod runs"),
    ({"metadata": {"labels": None}}, "changes annotations only"),
    ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}}, "changes annotations only"),
    (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
        "changes annotations only",
    ),
    (annotated(mine="1"), f"changes {COST} only"),
    (annotated(theirs=None), f"changes {COST} only"),
    ({"metadata": {"annotations": None}}, f"changes {COST} only"),
    (IMAGE | annotated(**{COST: "1"}), "does not change what a pod runs"),
)


def test_a_cost_is_set_changed_and_taken_back_and_nothing_else(pods: Pods) -> None:
    """By server-side apply, too, which is how the operator does it; others are not held to the policy."""
    pods.make("worker")
    for cost in ("3", "5", None):
        assert pods.refusal("worker", annotated(**{COST: cost})) == ""
        metadata = pods.admin.get(f"{pods.path}/worker")["metadata"]
        assert metadata["annotations"] == {"theirs": "1"} | ({COST: cost} if cost else {})
    applied = {"apiVersion": "v1", "kind": "Pod", **annotated(**{COST: "7"})}
    pods.rest.patch(f"{pods.path}/worker", applied, APPLY, fieldManager=names.VICTIMS)
    assert pods.admin.get(f"{pods.path}/worker")["metadata"]["annotations"] == {"theirs": "1", COST: "7"}
    assert pods.refusal("worker", annotated(**{COST: None})) == ""
    pods.make("scanner", component="scanner")
    before = pods.admin.get(f"{pods.path}/worker")
    for change, why in CHANGES:
        assert why in pods.refusal("worker", change)
    assert pods.admin.get(f"{pods.path}/worker") == before
    assert "no pods but workers" in pods.refusal("scanner", annotated(**{COST: "1"}))
    pods.admin.patch(f"{pods.path}/worker", annotated(theirs="2"))
    # The controller manager checks its expressions against the schema of pods, and has nothing to warn of.
    eventually(lambda: "typeChecking" in pods.admin.get(pods.policy).get("status", {}), timeout_s=30)
    assert pods.admin.get(pods.policy)["status"]["typeChecking"] == {}
