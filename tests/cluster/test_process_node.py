"""Pods that run as processes of this host live and end as a kubelet would have it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from tests.cluster.harness.node import ProcessNode
from tests.cluster.harness.resources import found
from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.control_plane import ControlPlane

SERVE = ["python", "-m", "http.server", "8080", "--bind", "0.0.0.0"]  # noqa: S104  the node makes it the address of the pod
READY = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
WORDS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), {end}))
print('up', flush=True)
time.sleep(60)
"""


def script(text: str, **fields: object) -> dict[str, Any]:
    return {"name": "main", "image": "none", "command": ["python", "-c", text], **fields}


def pod_spec(*containers: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"containers": list(containers), "automountServiceAccountToken": False, **fields}


class Pods:
    """The pods of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.rest = cluster.rest
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str, spec: dict[str, Any]) -> None:
        self.rest.create(self.path, {"metadata": {"name": name}, "spec": spec})

    def get(self, name: str) -> dict[str, Any]:
        return self.rest.get(f"{self.path}/{name}")

    def until(self, name: str, phase: str) -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            pod = self.get(name)
            assert pod["status"]["phase"] == phase, pod["status"]
            return pod

        return eventually(reached, what=f"{name} is {phase}")


@pytest.fixture
def pods(cluster: Cluster, namespace: str, process_node: ProcessNode) -> Pods:  # noqa: ARG001  runs them
    return Pods(cluster, namespace)


def test_a_deployment_becomes_available_with_an_address_for_each_pod(
    cluster: Cluster, namespace: str, pods: Pods
) -> None:
    container = {"name": "main", "image": "none", "command": SERVE, "readinessProbe": READY}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(container)}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.rest.create(path, {"metadata": {"name": "web"}, "spec": spec})
    cluster.kubectl("rollout", "status", "deployment/web", f"--namespace={namespace}", "--timeout=30s")
    addresses = {pod["status"]["podIP"] for pod in cluster.rest.items(pods.path)}
    assert len(addresses) == 2
    for address in addresses:
        with urlopen(f"http://{address}:8080/") as answer:
            assert answer.status == 200
    assert [
        item["ready"] for pod in cluster.rest.items(pods.path) for item in pod["status"]["containerStatuses"]
    ] == [True] * 2


@pytest.mark.parametrize(("code", "outcome"), [(0, "Complete"), (3, "Failed")])
def test_a_job_ends_as_its_process_did(cluster: Cluster, pods: Pods, code: int, outcome: str) -> None:
    namespace = pods.namespace
    spec = pod_spec(script(f"raise SystemExit({code})"), restartPolicy="Never")
    body = {"metadata": {"name": "once"}, "spec": {"template": {"spec": spec}, "backoffLimit": 0}}
    cluster.rest.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", body)
    cluster.kubectl(
        "wait", f"--for=condition={outcome}", "job/once", f"--namespace={namespace}", "--timeout=30s"
    )
    (pod,) = cluster.rest.items(pods.path)
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


def test_a_deleted_pod_is_asked_to_end_and_gone_when_it_has(pods: Pods, process_node: ProcessNode) -> None:
    pods.create("polite", pod_spec(script(WORDS.format(end="sys.exit(0)"))))
    eventually(lambda: "up" in process_node.log("polite", "main") if pods.until("polite", "Running") else "")
    pods.rest.delete(f"{pods.path}/polite")
    eventually(lambda: not pods_has(pods, "polite"), what="the pod is gone")
    assert process_node.log("polite", "main") == "up\nasked\n"


def pods_has(pods: Pods, name: str) -> bool:
    return any(pod["metadata"]["name"] == name for pod in pods.rest.items(pods.path))


def test_a_deleted_pod_that_does_not_end_is_killed_after_its_grace_period(
    pods: Pods, process_node: ProcessNode
) -> None:
    pods.create("deaf", pod_spec(script(WORDS.format(end="None")), terminationGracePeriodSeconds=1))
    eventually(lambda: "up" in process_node.log("deaf", "main") if pods.until("deaf", "Running") else "")
    before = time.monotonic()
    pods.rest.delete(f"{pods.path}/deaf")
    eventually(lambda: not pods_has(pods, "deaf"), what="the pod is gone")
    assert 1 <= time.monotonic() - before < 30, "which is the grace period without one in the spec"
    assert process_node.pod("deaf").containers[0].exit_code == 128 + signal.SIGKILL


def test_a_crashed_container_is_started_again_and_counted(pods: Pods) -> None:
    pods.create("shaky", pod_spec(script("raise SystemExit(2)")))

    def crashed_twice() -> bool:
        status = pods.get("shaky")["status"].get("containerStatuses", [{"restartCount": 0}])[0]
        return bool(status["restartCount"] >= 2 and status["lastState"]["terminated"]["exitCode"] == 2)

    eventually(crashed_twice)


def test_a_container_whose_liveness_probe_fails_is_started_again(pods: Pods) -> None:
    liveness = {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1}
    pods.create("hung", pod_spec(script("import time; time.sleep(60)", livenessProbe=liveness)))
    eventually(lambda: pods.get("hung")["status"].get("containerStatuses", [{}])[0].get("restartCount"))


def test_init_containers_run_first_and_in_order(pods: Pods, process_node: ProcessNode) -> None:
    write = "open('order', 'a').write('{}')"
    inits = [script(write.format(name)) | {"name": name} for name in ("a", "b")]
    spec = pod_spec(script("print(open('order').read())"), initContainers=inits, restartPolicy="Never")
    pods.create("ordered", spec)
    pods.until("ordered", "Succeeded")
    assert process_node.log("ordered", "main") == "ab\n"


def test_a_failed_init_container_fails_the_pod(pods: Pods) -> None:
    inits = [script("raise SystemExit(1)") | {"name": "first"}]
    pods.create("spoilt", pod_spec(script("print('never')"), initContainers=inits, restartPolicy="Never"))
    pods.until("spoilt", "Failed")


def test_volumes_and_variables_reach_the_process(
    cluster: Cluster, namespace: str, pods: Pods, process_node: ProcessNode
) -> None:
    """And a pod waits for a Secret that does not exist yet."""
    cluster.kubectl(
        "create", "configmap", "settings", "--from-literal=colour=red", f"--namespace={namespace}"
    )
    text = (
        "from os import environ as of; print(open(of['FILE']).read(), of['COLOUR'], of['NAME'], of['BOTH'])"
    )
    env = [
        {"name": "FILE", "value": "/etc/app/keys/password"},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BOTH", "value": "$(NAME)-$(COLOUR)"},
    ]
    sources = [
        {"configMap": {"name": "settings"}},
        {"secret": {"name": "keys", "items": [{"key": "password", "path": "keys/password"}]}},
    ]
    volumes = [{"name": "app", "projected": {"sources": sources}}]
    mounts = [{"name": "app", "mountPath": "/etc/app"}]
    container = script(text, env=env, volumeMounts=mounts)
    pods.create("reader", pod_spec(container, volumes=volumes, restartPolicy="Never"))
    eventually(lambda: 'secrets "keys" not found' in pods.get("reader")["status"].get("message", ""))
    cluster.kubectl(
        "create", "secret", "generic", "keys", "--from-literal=password=s3", f"--namespace={namespace}"
    )
    pods.until("reader", "Succeeded")
    assert process_node.log("reader", "main") == "s3 red reader reader-red\n"


def test_a_service_account_is_found_through_its_kubeconfig(pods: Pods, process_node: ProcessNode) -> None:
    text = "from kubernetes import config, client; config.load_kube_config(); client.VersionApi().get_code()"
    pods.create("caller", {"containers": [script(f"{text}; print('in')")], "restartPolicy": "Never"})
    pods.until("caller", "Succeeded")
    assert process_node.log("caller", "main") == "in\n"


def test_processes_go_on_while_the_api_server_is_away_and_are_told_of_after(
    control_plane: ControlPlane, pods: Pods, process_node: ProcessNode
) -> None:
    pods.create(
        "steady", pod_spec(script("import time; time.sleep(1.5); print('done')"), restartPolicy="Never")
    )
    pods.until("steady", "Running")
    control_plane.api_server.kill()
    eventually(lambda: process_node.log("steady", "main") == "done\n")
    control_plane.api_server.start()
    pods.until("steady", "Succeeded")


def test_the_node_is_ready_and_leaves_nothing_running(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    pods = Pods(cluster, namespace)
    with ProcessNode(cluster, namespace, tmp_path / "pods") as node:
        assert " Ready " in cluster.kubectl("get", "nodes").stdout
        pods.create("lasting", pod_spec(script("import time; time.sleep(60)")))
        pods.until("lasting", "Running")
        process = node.pod("lasting").containers[0].process
    assert process is not None
    assert process.popen.returncode == -signal.SIGKILL
    assert not found(cluster, f"/api/v1/nodes/{node.name}")
