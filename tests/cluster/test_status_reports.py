"""Failures outside of the operator are reported in conditions and events."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pytest
from delayq_operator.base import names
from delayq_operator.status.unready import START_SECONDS

from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually, lenient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.world import World


HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def a_webhook_that_is_away(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Refuse all Deployments of a namespace because nobody is there to ask."""
    rule = {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments"]}
    hook = {
        "name": "away.delayq.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [rule],
    }
    cluster.rest.create(HOOKS, {"metadata": {"name": namespace}, "webhooks": [hook]})
    try:
        yield
    finally:
        cluster.rest.delete(f"{HOOKS}/{namespace}")


def test_a_webhook_that_is_away_is_named(cluster: Cluster, world: World) -> None:
    """Degraded names it and the child that it keeps us from; other children are made; when it is gone, all is well."""
    with a_webhook_that_is_away(cluster, world.namespace):
        eventually(lambda: _refused(world), what="the webhook is in force")
        world.create()
        told = world.until("Degraded", "True", "ApplyFailed")["message"]
        assert (
            'Deployment orders-worker: Internal error occurred: failed calling webhook "away.delayq.dev"'
            in told
        )
        world.event("ApplyFailed", "away.delayq.dev")
        assert world.there("configmaps", "orders-config")
    eventually(lambda: world.there("deployments", "orders-worker"), timeout_s=90)
    world.until("Degraded", "False", "AsExpected", timeout_s=90)


def _refused(world: World) -> bool:
    labels = {"app": "probe"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    body = {"metadata": {"name": "probe"}, "spec": {"selector": {"matchLabels": labels}, "template": pod}}
    try:
        world.cluster.rest.create(world.path("deployments"), body, dryRun="All")
    except Refused as error:
        return "failed calling webhook" in str(error)
    return False


def test_what_the_kubelet_says_of_a_variable_is_reported(world: World) -> None:
    """A key that a template names for a variable is the pod's to miss: in words that reach Ready and Degraded."""
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "token"}}}
    world.make("secrets", {"metadata": {"name": "shop-db"}, "stringData": {"other": "s3cret"}})
    world.start(worker={"template": {"spec": {"containers": [{"name": "worker", "env": [variable]}]}}})
    world.pretend_ready("scanner")
    missing = f"couldn't find key token in Secret {world.namespace}/shop-db"
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": missing}}
    container = {
        "name": "worker",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": waiting,
    }
    for pod in world.pods("worker"):
        path = f"{world.path('pods', pod['metadata']['name'])}/status"
        world.cluster.rest.patch(path, {"status": {"phase": "Pending", "containerStatuses": [container]}})
    assert missing in world.until("Degraded", "True", "PodsFailing")["message"]
    assert missing in world.until("Ready", "False", "WorkersNotReady")["message"]


@pytest.mark.usefixtures("process_node")
def test_code_that_is_not_in_the_operators_image_is_reported(world: World) -> None:
    """The worker says what it did not find, and the operator which field is missing."""
    world.create(handler={"python": {"callable": "nowhere:handle"}})
    told = world.until("Degraded", "True", "PodsFailing", timeout_s=60)["message"]
    assert 'no module "nowhere"' in told.replace("\\", "")
    assert told.endswith("set spec.worker.image.")


@pytest.mark.full
def test_a_queue_that_never_becomes_ready_has_an_event_after_a_minute(world: World) -> None:
    """Whatever happens to others meanwhile, and not before pods had the time to start."""
    world.create()
    world.settle()
    assert world.events("NotReady") == []
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline - 5:
        world.annotate(nudged=str(time.monotonic()))
        time.sleep(1)
    world.event("NotReady", "ScannersNotReady")
    selector = "involvedObject.name=orders,reason=NotReady"
    (event,) = world.items("events", fieldSelector=selector)
    born = datetime.fromisoformat(world.queue()["metadata"]["creationTimestamp"])
    told = datetime.fromisoformat(event["firstTimestamp"])
    assert START_SECONDS - 2 <= (told - born).total_seconds() <= START_SECONDS + lenient(10)
    assert event["type"] == "Warning"
    assert names.OPERATOR in event["reportingComponent"]
