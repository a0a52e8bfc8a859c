"""The chart gives the operator the rights that it uses, and no others: its Role against the audit log.

On a control plane that also enforces that whoever blocks an owner's deletion may do so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from delayq_operator.base import names

from tests.cluster.chart import rendered
from tests.cluster.harness.resources import delayqueues, found, install_crd, make_namespace
from tests.cluster.harness.rest import Refused, Rest
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, condition, install_rights, queue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.audit import AuditEvent
    from tests.cluster.harness.control_plane import ControlPlane

pytestmark = pytest.mark.xdist_group("bare")

ACCOUNT: Final = "delayq-operator"
CREATED: Final = 201

Right = tuple[str, str, str]
"""API group, resource, verb."""

UNSEEN: Final = {("delayq.dev", "delayqueues/finalizers", "update")}
"""Asked for by an admission plugin while it looks at another request; it has a test of its own."""


@pytest.fixture
def room(plane: ControlPlane) -> str:
    install_crd(plane)
    name = f"rbac-{uuid4().hex[:8]}"
    make_namespace(plane, name)
    return name


def allowed(values: dict[str, Any], kind: str) -> set[Right]:
    """What the chart's roles of the operator allow."""
    rules = [
        rule
        for role in rendered(values)
        if role["kind"] in {kind, "Role"} and role["metadata"]["name"].startswith(ACCOUNT)
        for rule in role["rules"]
    ]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: list[AuditEvent]) -> set[Right]:
    """What was asked for; an apply that made an object took the right to create it, too."""
    rights = set()
    for event in events:
        if event.resource:  # else discovery, which everybody may
            resource = "/".join(filter(None, (event.resource, event.subresource)))
            rights.add((event.group, resource, event.verb))
            if event.verb == "patch" and event.code == CREATED:
                rights.add((event.group, resource, "create"))
    return rights


@dataclass
class Life:
    """Everything that can happen to a DelayQueue, so that the operator does everything it ever does."""

    plane: ControlPlane
    namespace: str

    @property
    def path(self) -> str:
        return f"{delayqueues(self.namespace)}/orders"

    def all(self) -> None:
        self.begin()
        self.disturb()
        self.stray()
        self.change()
        self.end()

    def begin(self) -> None:
        """With a Secret and a ConfigMap, and with every kind of child."""
        for kind, content in (("secrets", {"stringData": {"password": "x"}}), ("configmaps", {})):
            body = {"metadata": {"name": "shop"}, **content}
            self.plane.rest.create(f"/api/v1/namespaces/{self.namespace}/{kind}", body)
        container = {"name": "worker", "envFrom": [{"configMapRef": {"name": "shop"}}]}
        document = queue(
            redis={"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "shop"}}},
            networkPolicy={"enabled": True},
            monitoring={"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
            worker={"replicas": 2, "template": {"spec": {"containers": [container]}}},
            deletionPolicy="Delete",
        )
        self.plane.rest.create(delayqueues(self.namespace), document)
        eventually(lambda: set(self.children()) == set(CHILDREN) - {"jobs"}, what="every kind of child")
        eventually(lambda: condition(self.plane.rest.get(self.path), "Accepted")["status"] == "True")

    def disturb(self) -> None:
        """A child is deleted, another is edited."""
        worker = f"{self.all_of('deployments')}/orders-worker"
        reaper = f"{self.all_of('cronjobs')}/orders-reaper"
        self.plane.rest.delete(worker)
        self.plane.rest.patch(reaper, {"spec": {"concurrencyPolicy": "Allow"}})
        eventually(lambda: found(self.plane, worker))
        eventually(lambda: self.plane.rest.get(reaper)["spec"]["concurrencyPolicy"] == "Forbid")

    def stray(self) -> None:
        """Of every kind a child that is not wanted, as an older operator may have left it."""
        owner = self.plane.rest.get(self.path)
        for plural, kind in CHILDREN.items():
            self.plane.rest.create(self.all_of(plural), unwanted(kind, owner))
        left = [f"{self.all_of(plural)}/stray" for plural in CHILDREN]
        eventually(lambda: not any(found(self.plane, path) for path in left), what="strays are pruned")

    def change(self) -> None:
        """Another number of workers, which the scaler writes; before there are fewer, the costs of those there are."""
        worker = f"{self.all_of('deployments')}/orders-worker"
        for number in (3, 2):
            self.plane.rest.patch(self.path, {"spec": {"worker": {"replicas": number}}})
            eventually(lambda number=number: self.plane.rest.get(worker)["spec"]["replicas"] == number)  # type: ignore[misc]
            if number == 3:
                eventually(lambda: len(self.workers()) == 3)
                for pod in self.workers():
                    status = {
                        "phase": "Running",
                        "podIP": "127.0.0.1",
                        "podIPs": [{"ip": "127.0.0.1"}],
                        "conditions": [{"type": "Ready", "status": "True"}],
                    }
                    self.plane.rest.patch(f"{pod}/status", {"status": status})

    def workers(self) -> list[str]:
        """Paths of the pods."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        selector = f"{names.COMPONENT_LABEL}=worker"
        found = self.plane.rest.items(pods, labelSelector=selector)
        return [f"{pods}/{pod['metadata']['name']}" for pod in found]

    def end(self) -> None:
        """It is deleted; its erase Job cannot end here, for nothing runs pods."""
        self.plane.rest.delete(self.path)
        eventually(lambda: found(self.plane, f"{self.all_of('jobs')}/orders-erase"))
        self.plane.rest.patch(self.path, {"metadata": {"finalizers": None}})
        eventually(lambda: not found(self.plane, self.path))

    def children(self) -> list[str]:
        selector = f"{names.QUEUE_LABEL}=orders"
        return [
            plural
            for plural in CHILDREN
            if self.plane.rest.items(self.all_of(plural), labelSelector=selector)
        ]

    def all_of(self, plural: str) -> str:
        version = CHILDREN[plural].api_version
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{prefix}/namespaces/{self.namespace}/{plural}"


CHILDREN: Final = {kind.plural: kind for kind in (*names.CHILDREN, *names.OPTIONAL_CHILDREN)}

POD: Final = {
    "metadata": {"labels": {"app": "stray"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]},
}
ALWAYS: Final = {**POD, "spec": {"containers": POD["spec"]["containers"]}}  # type: ignore[index]
SPECS: Final[dict[str, dict[str, Any]]] = {
    "services": {"ports": [{"port": 1}]},
    "networkpolicies": {"podSelector": {}},
    "poddisruptionbudgets": {"maxUnavailable": 1},
    "deployments": {"selector": {"matchLabels": {"app": "stray"}}, "template": ALWAYS},
    "cronjobs": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": POD}}},
    "jobs": {"template": POD, "suspend": True},
}


def unwanted(kind: names.Kind, owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": names.DELAY_QUEUE.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    labels = names.labels(owner["metadata"]["name"], "config")
    metadata = {"name": "stray", "labels": labels, "ownerReferences": [reference]}
    spec = {"spec": SPECS[kind.plural]} if kind.plural in SPECS else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **spec}


def lived(plane: ControlPlane, namespace: str, *, everywhere: bool) -> list[AuditEvent]:
    """What an operator asked for while it served a DelayQueue from beginning to end, and was restarted once."""
    mark = plane.audit_mark()
    kubeconfig = install_rights(plane, namespace, everywhere=everywhere)
    for live in (Life(plane, namespace).all, lambda: None):
        operator = Operator.start(kubeconfig, namespace, everywhere=everywhere).wait_ready()
        try:
            live()
        finally:
            operator.process.stop()
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    return plane.audit_events(mark, user=user)


@pytest.mark.parametrize("everywhere", [False, True], ids=["namespaced", "cluster-wide"])
def test_the_role_allows_what_the_operator_does_and_nothing_else(
    plane: ControlPlane, room: str, *, everywhere: bool
) -> None:
    values = {} if everywhere else {"watchNamespaces": [room]}
    events = lived(plane, room, everywhere=everywhere)
    rights = allowed(values, "ClusterRole" if everywhere else "Role")
    assert [event for event in events if event.code == 403] == []
    assert used(events) <= rights
    assert rights - used(events) == UNSEEN


def test_children_that_block_their_owner_take_the_right_to_do_so(plane: ControlPlane, room: str) -> None:
    """Without `update` on delayqueues/finalizers, a careful cluster refuses what the operator makes."""
    kubeconfig = install_rights(plane, room)
    child = blocking(plane.rest.create(delayqueues(room), queue()))
    assert refused(kubeconfig, room, child) == ""
    withdraw(plane, room, "delayqueues/finalizers")
    eventually(lambda: "blockOwnerDeletion" in refused(kubeconfig, room, child))


def blocking(owner: dict[str, Any]) -> dict[str, Any]:
    child = unwanted(names.CONFIG_MAP, owner)
    child["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    return child


def refused(kubeconfig: Path, namespace: str, body: dict[str, Any]) -> str:
    """What the API server says against making it; nothing if it would."""
    rest = Rest(kubeconfig)
    try:
        rest.create(f"/api/v1/namespaces/{namespace}/configmaps", body, dryRun="All")
    except Refused as error:
        return str(error)
    finally:
        rest.close()
    return ""


def withdraw(plane: ControlPlane, namespace: str, resource: str) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{ACCOUNT}"
    rules = [rule for rule in plane.rest.get(path)["rules"] if rule["resources"] != [resource]]
    plane.rest.patch(path, {"rules": rules})
