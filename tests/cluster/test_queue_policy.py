"""What DelayQueues may not ask for: the API server says so at once, the operator in any case, and what runs goes on."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from delayq_operator.base import names

from tests.cluster.harness.resources import delayqueues, delete_namespace, make_namespace
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, condition, install_rights, queue
from tests.cluster.world import World, running
from tests.offline.chart import CHART, RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.control_plane import ControlPlane

pytestmark = pytest.mark.usefixtures("crd")

ACCOUNT: Final = "delayq-operator"
THEIRS: Final = "example.com/theirs"
"""A finalizer of another controller."""


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
        self.rest.create(delayqueues(self.shop), templated(hostNetwork=True))  # from before the policy
        cluster.kubectl("apply", "-f", "-", input=self.text)
        probe = templated(serviceAccountName=ACCOUNT) | {"metadata": {"name": "probe"}}
        eventually(lambda: "operator's own" in self.refusal(probe), what="the policy counts")

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


def container(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a container
    return {"name": "x", "image": "x", **fields}


PRIVILEGED: Final = container(securityContext={"privileged": True})
FORBIDDEN: Final[tuple[dict[str, Any], ...]] = (
    *({field: True} for field in ("hostNetwork", "hostPID", "hostIPC")),
    {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]},
    {"containers": [container(ports=[{"containerPort": 1, "hostPort": 1}])]},
    *({field: [{"name": "y", "image": "y"}, PRIVILEGED]} for field in ("containers", "initContainers")),
)
HARMLESS: Final[dict[str, Any]] = {
    "serviceAccountName": "shop",
    "hostNetwork": False,
    "initContainers": None,
    "volumes": [{"name": "a", "emptyDir": {}}],
    "containers": [container(securityContext={"privileged": False}, ports=[{"containerPort": 7}])],
}


def test_the_api_server_refuses_at_once(admission: Admission) -> None:
    other = {"metadata": {"name": "other"}}
    assert admission.refusal(queue() | other) == ""
    assert admission.refusal(templated(**HARMLESS) | other) == ""
    assert "is the operator's own namespace" in admission.refusal(queue() | other, admission.home)
    for role in ("scanner", "worker", "reaper"):
        body = templated(role, serviceAccountName=ACCOUNT) | other
        assert "operator's own ServiceAccount" in admission.refusal(body)
    for pod in FORBIDDEN:
        assert "Pod Security baseline forbids" in admission.refusal(templated(**pod) | other), pod
    # A queue from before the policy can be edited and deleted.
    path = f"{delayqueues(admission.shop)}/orders"
    changed = admission.rest.patch(path, {"spec": {"deletionPolicy": "Retain", "scanner": {"replicas": 1}}})
    assert changed["spec"]["worker"]["template"]["spec"] == {"hostNetwork": True}
    admission.rest.patch(path, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Refused, match="baseline"):
        admission.rest.patch(path, {"spec": {"worker": {"template": {"spec": {"hostPID": True}}}}})
    admission.rest.delete(path)


def test_what_is_refused_after_an_upgrade_goes_on_and_is_scaled(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """The Deployment stays as it was, but for the number of its pods; what is corrected follows the spec again."""
    worker = ("deployments", "orders-worker")
    with running(Operator.fork(kubeconfig, namespace, "--pod-security=privileged")) as operator:
        world = World(cluster, operator, namespace)
        world.create(**templated(hostPID=True)["spec"])
        world.until("Accepted", "True")
        before = world.get(*worker)
    with running(Operator.fork(kubeconfig, namespace, "--worker-image=newer")) as world.operator:
        # Not waiting for its generation, for nothing edits the spec.
        reported = "spec.worker.template.spec.hostPID: true is forbidden"
        eventually(lambda: reported in condition(world.queue(), "Accepted")["message"], what="it is refused")
        world.edit(worker={"replicas": 3})
        eventually(lambda: world.get(*worker)["spec"]["replicas"] == 3, what="it is scaled")
        after = world.get(*worker)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["template"] == before["spec"]["template"]
        world.edit(worker={"template": None})
        world.until("Accepted", "True")
        eventually(lambda: world.get(*worker)["spec"]["template"] != before["spec"]["template"])


def keep(cluster: ControlPlane, namespace: str, *finalizers: str) -> None:
    patch = json.dumps({"metadata": {"finalizers": list(finalizers)}})
    cluster.kubectl(
        "patch", "delayqueue", "large", f"--namespace={namespace}", "--type=merge", "--patch", patch
    )


def test_what_is_refused_does_not_become_the_erase_job_and_can_be_deleted(
    cluster: ControlPlane, namespace: str
) -> None:
    """A template with the operator's account, a queue in its own namespace, and one that is too large to be kept."""
    reaper = {"reaper": {"template": {"spec": {"serviceAccountName": ACCOUNT}}}}
    annotations = {f"a{at}": "x" * 32_000 for at in range(13)}
    large = {"worker": {"template": {"metadata": {"annotations": annotations}}}}
    home = f"operator-{uuid4().hex[:8]}"
    make_namespace(cluster, home)
    own = (f"--own-namespace={home}", f"--own-service-account={ACCOUNT}")
    rights = install_rights(cluster, home, everywhere=True)
    with running(Operator.fork(rights, home, *own, everywhere=True)) as operator:
        shop, office = (World(cluster, operator, where) for where in (namespace, home))
        shop.start("large", deletionPolicy="Delete")
        before = shop.get("deployments", "large-worker")["spec"]
        shop.edit("large", **large)
        keep(cluster, namespace, names.ERASE_FINALIZER, THEIRS)
        shop.create("account", deletionPolicy="Delete", **reaper)
        office.create("own", deletionPolicy="Delete")
        for world, name, reason, words in (
            (shop, "account", "PolicyViolation", "is the operator's own ServiceAccount"),
            (office, "own", "PolicyViolation", "metadata.namespace"),
            (shop, "large", "InvalidSpec", "expected at most 393,216 bytes"),
        ):
            assert words in world.until("Accepted", "False", reason, name=name)["message"]
            if name == "large":
                assert world.get("deployments", "large-worker")["spec"] == before, "what runs goes on"
            else:
                assert not world.there("deployments", f"{name}-worker")
                assert names.ERASE_FINALIZER in world.queue(name)["metadata"]["finalizers"]
            world.delete(names.PLURAL, name)
            world.until("Degraded", "True", "EraseFailed", name=name)
            assert not world.there("jobs", f"{name}-erase")
            if name == "account":
                world.edit(name, reaper={"template": None})
                eventually(partial(world.there, "jobs", "account-erase"), what="the Job")
            world.edit(name, deletionPolicy="Retain")
            if name == "large":
                eventually(lambda: shop.queue("large")["metadata"]["finalizers"] == [THEIRS])
                keep(cluster, namespace)
            for plural, child in ((names.PLURAL, name), ("jobs", f"{name}-erase")):
                eventually(partial(gone, world, plural, child), what=f"{child} is gone")
    delete_namespace(cluster, home)


def gone(world: World, plural: str, name: str) -> bool:
    return not world.there(plural, name)
