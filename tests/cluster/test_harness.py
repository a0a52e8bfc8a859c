"""The control plane that the other tests stand on is a real one, and survives what they do to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.harness.resources import found
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from kubernetes.dynamic import DynamicClient

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.control_plane import ControlPlane

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "sleeper"}},
    "spec": {
        "containers": [{"name": "main", "image": "none", "command": ["true"]}],
        "restartPolicy": "Always",
    },
}


def config_map(name: str, **metadata: object) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"key": "value"}}


def deployment(name: str, replicas: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": POD["metadata"]["labels"]}, "template": POD}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_kubectl_and_the_server_know_their_versions(cluster: Cluster) -> None:
    versions = json.loads(cluster.kubectl("version", "--output=json").stdout)
    assert versions["clientVersion"]["gitVersion"].startswith("v1.")
    assert versions["serverVersion"]["gitVersion"].startswith("v1.")
    assert int(versions["serverVersion"]["minor"]) >= 30


def test_the_dynamic_client_works(admin: DynamicClient, namespace: str) -> None:
    maps = admin.resources.get(api_version="v1", kind="ConfigMap")
    maps.create(body=config_map("seen"), namespace=namespace)
    assert maps.get(name="seen", namespace=namespace).data.key == "value"


def test_a_killed_api_server_comes_back_with_its_objects(control_plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    control_plane.rest.create(path, config_map("kept"))
    control_plane.api_server.kill()
    assert not control_plane.api_server.alive
    control_plane.api_server.start()
    assert control_plane.rest.get(f"{path}/kept")["data"] == {"key": "value"}


def test_a_stopped_api_server_ends_by_itself(control_plane: ControlPlane) -> None:
    control_plane.api_server.stop()
    assert control_plane.api_server.exit_code == 0
    control_plane.api_server.start()


def test_what_an_object_owned_is_collected_after_it(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = cluster.rest.create(path, config_map("owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    cluster.rest.create(path, config_map("owned", ownerReferences=[reference]))
    cluster.rest.delete(f"{path}/owner")
    eventually(lambda: not found(cluster, f"{path}/owned"), what="the owned object is collected")


def test_a_deployment_makes_pods_and_a_restarted_controller_manager_goes_on(
    control_plane: ControlPlane, namespace: str
) -> None:
    def pods() -> int:
        return len(control_plane.rest.items(f"/api/v1/namespaces/{namespace}/pods"))

    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    control_plane.rest.create(path, deployment("sleeper", 2))
    eventually(lambda: pods() == 2, what="two pods are made")
    control_plane.controller_manager.stop()
    control_plane.rest.patch(f"{path}/sleeper/scale", {"spec": {"replicas": 3}})
    control_plane.controller_manager.start()
    eventually(lambda: pods() == 3, what="the third pod is made")


def test_a_cron_job_makes_a_job_and_the_job_a_pod(cluster: Cluster, namespace: str) -> None:
    template = POD | {"spec": POD["spec"] | {"restartPolicy": "Never"}}
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template}}}
    path = f"/apis/batch/v1/namespaces/{namespace}/cronjobs"
    cluster.rest.create(path, {"metadata": {"name": "hourly"}, "spec": spec})
    # It ran last two hours ago, so the next run is overdue.
    before = datetime.now(UTC) - timedelta(hours=2)
    cluster.rest.patch(
        f"{path}/hourly/status", {"status": {"lastScheduleTime": f"{before:%Y-%m-%dT%H:%M:%SZ}"}}
    )
    eventually(
        lambda: cluster.rest.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector="job-name"),
        what="the Job makes a pod",
    )


def test_the_audit_log_tells_what_a_service_account_did_and_was_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader", f"--namespace={namespace}")
    who = control_plane.kubeconfig_for(namespace, "reader")
    mark = control_plane.audit_mark()
    refused = control_plane.kubectl("get", "configmaps", kubeconfig=who, check=False)
    assert "forbidden" in refused.stderr
    user = f"system:serviceaccount:{namespace}:reader"
    events = [event for event in control_plane.audit_events(mark, user=user) if event.resource]
    assert [(event.verb, event.resource, event.namespace, event.code) for event in events] == [
        ("list", "configmaps", namespace, 403)
    ]


def test_a_refusal_says_why(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Refused) as caught:
        cluster.rest.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map("Wrong Name"))
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.causes[0]["field"] == "metadata.name"


def test_helm_reaches_the_cluster(cluster: Cluster, namespace: str) -> None:
    assert cluster.helm("list", f"--namespace={namespace}", "--output=json").stdout.strip() == "[]"
