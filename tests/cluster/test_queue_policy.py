"""What DelayQueues may not ask for: the API server says so at once, the operator in any case, and what runs goes on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from delayq_operator.base import names

from tests.cluster.chart import CHART, RELEASE
from tests.cluster.harness.resources import delayqueues, delete_namespace, found, make_namespace
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, condition, install_rights, queue
from tests.cluster.world import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.usefixtures("crd")

ACCOUNT: Final = "delayq-operator"


def templated(role: str = "worker", **pod: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a document
    body = queue()
    body["spec"][role] = {"template": {"spec": pod}}
    return body


class Admission:
    """The chart's policy, of a release in `home` that serves `shop` too."""

    def __init__(self, cluster: Cluster, home: str) -> None:
        self.rest, self.home, self.shop = cluster.rest, home, f"{home}-shop"
        make_namespace(cluster, self.shop)
        self.text = cluster.helm(
            *("template", RELEASE, str(CHART), f"--namespace={home}"),
            *("--set", f"localImages=true,watchNamespaces={{{home},{self.shop}}}"),
            "--show-only=templates/queuepolicy.yaml",
        ).stdout
        # From before the policy.
        self.create(templated(hostNetwork=True), self.shop)
        cluster.kubectl("apply", "-f", "-", input=self.text)
        probe = templated(serviceAccountName=ACCOUNT) | {"metadata": {"name": "probe"}}
        eventually(lambda: "operator's own" in self.refusal(probe), what="the policy counts")

    def create(self, body: dict[str, Any], namespace: str) -> None:
        self.rest.create(delayqueues(namespace), body)

    def refusal(self, body: dict[str, Any], namespace: str = "") -> str:
        where = delayqueues(namespace or self.shop)
        try:
            self.rest.create(where, body)
        except Refused as error:
            return str(error)
        self.rest.delete(f"{where}/{body['metadata']['name']}")
        return ""


@pytest.fixture
def admission(cluster: Cluster, namespace: str) -> Iterator[Admission]:
    admission = Admission(cluster, namespace)
    yield admission
    cluster.kubectl("delete", "-f", "-", "--ignore-not-found", input=admission.text)
    cluster.kubectl("delete", "namespace", admission.shop, "--wait=false")


def privileged(field: str) -> dict[str, Any]:
    container = {"name": "x", "image": "x", "securityContext": {"privileged": True}}
    return {field: [{"name": "y", "image": "y"}, container]}


def test_the_api_server_refuses_at_once(admission: Admission) -> None:
    other = {"metadata": {"name": "other"}}
    assert admission.refusal(queue() | other) == ""
    assert admission.refusal(templated(**harmless()) | other) == ""
    assert "is the operator's own namespace" in admission.refusal(queue() | other, admission.home)
    for role in ("scanner", "worker", "reaper"):
        body = templated(role, serviceAccountName=ACCOUNT) | other
        assert "operator's own ServiceAccount" in admission.refusal(body)
    hosts: list[dict[str, Any]] = [{field: True} for field in ("hostNetwork", "hostPID", "hostIPC")]
    volumes: dict[str, Any] = {
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]
    }
    ports: dict[str, Any] = {
        "containers": [{"name": "x", "image": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}]
    }
    for pod in (*hosts, volumes, ports, privileged("containers"), privileged("initContainers")):
        assert "Pod Security baseline forbids" in admission.refusal(templated(**pod) | other), pod
    # A queue from before the policy can be edited and deleted.
    path = f"{delayqueues(admission.shop)}/orders"
    changed = admission.rest.patch(path, {"spec": {"deletionPolicy": "Retain", "scanner": {"replicas": 1}}})
    assert changed["spec"]["worker"]["template"]["spec"] == {"hostNetwork": True}
    admission.rest.patch(path, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Refused, match="baseline"):
        admission.rest.patch(path, {"spec": {"worker": {"template": {"spec": {"hostPID": True}}}}})
    admission.rest.delete(path)


def harmless() -> dict[str, Any]:
    return {
        "serviceAccountName": "shop",
        "hostNetwork": False,
        "initContainers": None,
        "volumes": [{"name": "a", "emptyDir": {}}],
        "containers": [
            {"name": "worker", "securityContext": {"privileged": False}, "ports": [{"containerPort": 7}]}
        ],
    }


def worker(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return dict(cluster.rest.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/orders-worker"))


def accepted(
    cluster: Cluster, namespace: str, reason: str = "", words: str = "", *, name: str = "orders"
) -> None:
    """Wait until `Accepted` has this reason; without one, until it is absent: the document is valid."""
    path = f"{delayqueues(namespace)}/{name}"

    def told() -> bool:
        entry = condition(cluster.rest.get(path), "Accepted")
        known = entry["status"] == ("False" if reason else "True")
        return known and entry["reason"] == reason and words in entry["message"]

    eventually(told, what=f"Accepted is {reason}")


def test_what_is_refused_after_an_upgrade_goes_on_and_is_scaled(cluster: Cluster, namespace: str) -> None:
    """The Deployment stays as it was, but for the number of its pods; what is corrected follows the spec again."""
    rights = install_rights(cluster, namespace)
    operator = Operator.start(rights, namespace, "--pod-security=privileged").wait_ready()
    path = f"{delayqueues(namespace)}/orders"
    cluster.rest.create(delayqueues(namespace), templated(hostPID=True))
    accepted(cluster, namespace)
    before = worker(cluster, namespace)
    operator.process.stop()
    operator = Operator.start(rights, namespace, "--worker-image=newer").wait_ready()
    accepted(cluster, namespace, "PolicyViolation", "spec.worker.template.spec.hostPID: true is forbidden")
    cluster.rest.patch(path, {"spec": {"worker": {"replicas": 3}}})
    eventually(lambda: worker(cluster, namespace)["spec"]["replicas"] == 3, what="it is scaled")
    after = worker(cluster, namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"]
    cluster.rest.patch(path, {"spec": {"worker": {"template": None}}})
    accepted(cluster, namespace)
    eventually(lambda: worker(cluster, namespace)["spec"]["template"] != before["spec"]["template"])
    operator.process.stop()


@pytest.fixture
def own_namespace(cluster: Cluster) -> Iterator[str]:
    """The namespace of an operator for all namespaces, which knows it and its own ServiceAccount, as in the chart."""
    home = f"operator-{uuid4().hex[:8]}"
    make_namespace(cluster, home)
    rights = install_rights(cluster, home, everywhere=True)
    args = (f"--own-namespace={home}", f"--own-service-account={ACCOUNT}")
    with running(Operator.start(rights, home, *args, everywhere=True)):
        yield home
    delete_namespace(cluster, home)


def test_what_is_refused_does_not_become_the_erase_job_and_can_be_deleted(
    cluster: Cluster, own_namespace: str, namespace: str
) -> None:
    """A template with the operator's account, a queue in its own namespace, and one that is too large to be kept."""
    delete = {"deletionPolicy": "Delete"}
    reaper = {"reaper": {"template": {"spec": {"serviceAccountName": ACCOUNT}}}}
    large = {"worker": {"template": {"metadata": {"annotations": {"a": "x" * 400_000}}}}}
    wrong: dict[tuple[str, str], tuple[dict[str, Any], str, str]] = {
        ("account", namespace): (reaper, "PolicyViolation", "is the operator's own ServiceAccount"),
        ("own", own_namespace): ({}, "PolicyViolation", "metadata.namespace"),
        ("large", namespace): (large, "InvalidSpec", "expected at most 393,216 bytes"),
    }
    for (name, where), (spec, reason, words) in wrong.items():
        path = f"{delayqueues(where)}/{name}"
        children = f"/apis/{{}}/namespaces/{where}/{{}}/{name}-{{}}"
        worker, job = (
            children.format("apps/v1", "deployments", "worker"),
            children.format("batch/v1", "jobs", "erase"),
        )
        cluster.rest.create(delayqueues(where), queue(name, **delete, **({} if name == "large" else spec)))
        before = None
        if name == "large":
            eventually(partial(found, cluster, worker))
            before = cluster.rest.get(worker)["spec"]
            cluster.rest.patch(path, {"spec": spec})
        accepted(cluster, where, reason, words, name=name)
        if before is not None:
            assert cluster.rest.get(worker)["spec"] == before, "what runs goes on"
        else:
            assert not found(cluster, worker)
            assert names.ERASE_FINALIZER in cluster.rest.get(path)["metadata"]["finalizers"]
        cluster.rest.delete(path)
        eventually(partial(failed, cluster, path), what="Degraded says so")
        assert not found(cluster, job)
        if name == "account":
            cluster.rest.patch(path, {"spec": {"reaper": {"template": None}}})
            eventually(partial(found, cluster, job))
        cluster.rest.patch(path, {"spec": {"deletionPolicy": "Retain"}})
        eventually(lambda path=path: not found(cluster, path), what="it is gone")  # type: ignore[misc]


def failed(cluster: Cluster, path: str) -> bool:
    return bool(condition(cluster.rest.get(path), "Degraded")["reason"] == "EraseFailed")
