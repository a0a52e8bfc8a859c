"""Failures outside of the operator are reported in conditions and events."""

from __future__ import annotations

import base64
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names
from delayq_operator.status.unready import START_SECONDS

from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.test_api import a_webhook_that_is_away

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.world import World

pytestmark = pytest.mark.xdist_group("status")


def workers(world: World) -> int:
    return int(world.get("deployments", "orders-worker")["spec"]["replicas"])


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


def test_an_annotation_that_does_not_pause_says_so(world: World) -> None:
    world.start()
    world.annotate(paused="yes")
    told = world.until("Paused", "False", "InvalidAnnotation")["message"]
    assert '"yes", neither true nor false' in told
    world.event("InvalidAnnotation", '"yes"')
    world.edit(worker={"replicas": 3})
    eventually(lambda: workers(world) == 3, what="the spec is followed")
    world.annotate(paused="true")
    world.until("Paused", "True", "PausedByAnnotation")
    world.annotate(paused="false")
    world.until("Paused", "False")


def test_a_key_that_a_secret_lacks_is_named(world: World) -> None:
    """Its pods would wait in ContainerCreating without a word; when the key comes, all is well."""
    world.make("secrets", {"metadata": {"name": "shop-db"}, "stringData": {"passwrod": "s3cret"}})
    world.create(
        redis={"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "shop-db"}}}
    )
    told = world.until("Accepted", "False", "ReferenceNotFound")["message"]
    assert "key password of Secret shop-db not found" in told
    assert "s3cret" not in str(world.queue())
    world.event("ReferenceNotFound", "key password of Secret shop-db")
    assert world.there("deployments", "orders-worker")
    password = base64.b64encode(b"s3cret").decode()
    world.patch("secrets", "shop-db", {"data": {"password": password}})
    world.until("Accepted", "True")


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
