"""Rights are missing, from the start or suddenly, all or one: the operator says which, and ends where it must."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from tests.cluster.harness.resources import make_namespace
from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import Operator, install_rights
from tests.cluster.world import World, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
ACCOUNT: Final = "delayq-operator"
DENIED: Final = 4
# A start-up, and the 20 s for which an API server that just started denies everything.
PATIENCE_SECONDS: Final = 30.0
LIST_SECONDS: Final = 5  # of 60


def start(kubeconfig: Path, namespace: str) -> Operator:
    return Operator.fork(kubeconfig, namespace, f"--list-seconds={LIST_SECONDS}")


@pytest.fixture
def world(cluster: ControlPlane, kubeconfig: Path, namespace: str) -> Iterator[World]:
    with running(start(kubeconfig, namespace)) as operator:
        yield World(cluster, operator, namespace)


def withdraw(cluster: ControlPlane, namespace: str) -> dict[str, Any]:
    """Take the binding of the operator's Role away; what it was."""
    path = f"{RBAC.format(namespace)}/rolebindings/{ACCOUNT}"
    found = cluster.rest.get(path)
    cluster.rest.delete(path)
    return {"metadata": {"name": ACCOUNT}} | {part: found[part] for part in ("roleRef", "subjects")}


def restrict(cluster: ControlPlane, namespace: str, resource: str, verb: str) -> None:
    """Take one verb on one resource out of the operator's Role."""
    path = f"{RBAC.format(namespace)}/roles/{ACCOUNT}"
    rules = cluster.rest.get(path)["rules"]
    split = [
        {**rule, "resources": [one], "verbs": [v for v in rule["verbs"] if (one, v) != (resource, verb)]}
        for rule in rules
        for one in rule["resources"]
    ]
    cluster.rest.patch(path, {"rules": split})


def test_rights_withdrawn_end_the_operator_which_says_so_and_rights_given_back_let_the_next_one_work(
    cluster: ControlPlane, world: World, kubeconfig: Path, namespace: str
) -> None:
    world.start()
    binding = withdraw(cluster, namespace)
    withdrawn = time.monotonic()
    assert world.operator.process.wait(timeout_s=lenient(PATIENCE_SECONDS + LIST_SECONDS)) == DENIED
    print(f"ended {time.monotonic() - withdrawn:.1f} s after its rights were gone")
    last = next(line for line in world.operator.process.lines if "permissions_missing" in line)
    assert "forbidden" in last
    assert f'in the namespace "{namespace}"' in last
    assert "compare the chart's Role" in last

    cluster.rest.create(f"{RBAC.format(namespace)}/rolebindings", binding)
    world.edit(worker={"replicas": 3})
    with running(start(kubeconfig, namespace)):
        eventually(lambda: world.get("deployments", "orders-worker")["spec"]["replicas"] == 3)


def test_without_the_rights_to_watch_or_to_lead_it_ends_and_says_which_it_needs(
    cluster: ControlPlane,
    crd: str,  # noqa: ARG001  the CRD is installed
) -> None:
    """It could not see what happens; going on with what it last saw would be worse than a restart."""
    lacking = {
        'cannot watch resource "delayqueues"': "delayqueues",
        'cannot watch resource "deployments"': "deployments",
        'cannot get resource "leases"': "leases",
    }
    operators = {words: without(cluster, resource) for words, resource in lacking.items()}
    for words, operator in operators.items():
        assert operator.process.wait(timeout_s=lenient(2 * PATIENCE_SECONDS)) == DENIED
        assert words in next(line for line in operator.process.lines if "permissions_missing" in line)


def without(cluster: ControlPlane, resource: str) -> Operator:
    """An operator in a namespace of its own, that may not watch this resource, or has no rights to Leases."""
    namespace = f"test-{uuid4().hex[:8]}"
    make_namespace(cluster, namespace)
    kubeconfig = install_rights(cluster, namespace)
    if resource == "leases":
        cluster.rest.delete(f"{RBAC.format(namespace)}/rolebindings/{ACCOUNT}-leader")
    else:
        restrict(cluster, namespace, resource, "watch")
    return start(kubeconfig, namespace)


def test_one_missing_verb_on_a_child_is_a_condition_and_all_else_goes_on(
    cluster: ControlPlane, world: World, namespace: str
) -> None:
    """Degraded says it in the API server's words, the metric counts it; given back, it is put right without an edit."""
    world.start("before")
    restrict(cluster, namespace, "deployments", "patch")
    eventually(lambda: _refused(cluster, world), what="the API server refuses")
    world.create()
    reported = world.until("Degraded", "True", "ApplyFailed")["message"]
    assert "Deployment orders-worker" in reported
    assert 'cannot patch resource "deployments" in API group "apps"' in reported
    assert world.there("cronjobs", "orders-reaper")
    assert not world.there("deployments", "orders-worker")
    # The condition is written before the reconciliation ends, and is counted.
    eventually(lambda: world.operator.metric("delayq_operator_reconciles_total", result="refused") > 0)
    install_rights(cluster, namespace)
    eventually(lambda: world.there("deployments", "orders-worker"), what="put right", timeout_s=65)
    world.until("Degraded", "False")
    assert world.operator.process.alive


def _refused(cluster: ControlPlane, world: World) -> bool:
    where = {"namespace": world.namespace, "verb": "patch", "group": "apps", "resource": "deployments"}
    user = f"system:serviceaccount:{world.namespace}:{ACCOUNT}"
    review = {"spec": {"user": user, "resourceAttributes": where}}
    said = cluster.rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return not said["status"]["allowed"]
