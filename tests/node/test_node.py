"""The node that the other tests stand on is a real one: its pods are held to what their specs say."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.cluster.harness.binaries import binary
from tests.cluster.harness.waiting import eventually
from tests.processes import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.harness.rest import Object
    from tests.node.harness.node import Node

READY_SECONDS = 60
TMP = "/tmp"  # noqa: S108  of a pod
SERVE = ("python3", "-m", "http.server", "8080", "--directory", TMP)


def pod(name: str, image: str, *command: str, **container: object) -> Object:
    """As strict as the pods of queues are."""
    main = {
        "name": "main",
        "image": image,
        "command": list(command),
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": TMP}],
    }
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [main | container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        },
    }


@pytest.fixture
def run(node: Node, images: dict[str, str], namespace: str) -> Callable[..., Object]:
    """Runs a pod of the worker's image until a phase; the pod as it is then."""
    path = f"/api/v1/namespaces/{namespace}/pods"

    def look(name: str, phase: str) -> Object | None:
        found = node.cluster.rest.get(f"{path}/{name}")
        ready = all(each["ready"] for each in found["status"].get("containerStatuses", [{"ready": False}]))
        here = found["status"].get("phase") == phase and (ready or phase != "Running")
        return found if here else None

    def start(name: str, *command: str, phase: str = "Running", **container: object) -> Object:
        node.cluster.rest.create(path, pod(name, images["worker"], *command, **container))
        found = eventually(partial(look, name, phase), timeout_s=READY_SECONDS, what=f"{name} is {phase}")
        assert found is not None
        return found

    return start


def test_a_pod_is_not_root_cannot_write_to_its_image_and_is_under_seccomp(
    node: Node, run: Callable[..., Object], namespace: str
) -> None:
    run("strict", "sleep", "infinity")
    script = "id -u; touch /x; grep -E '^(Seccomp|CapEff|NoNewPrivs):' /proc/self/status; touch /tmp/x && echo written"
    said = node.cluster.kubectl("exec", f"--namespace={namespace}", "strict", "--", "sh", "-c", script)
    assert said.stdout.split() == [
        *("65532", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2", "written")
    ]
    assert "Read-only file system" in said.stderr


def test_a_pod_that_would_be_root_is_not_started(
    node: Node, run: Callable[..., Object], namespace: str
) -> None:
    run("root", "true", phase="Pending", securityContext={"runAsUser": 0})

    def reason() -> bool:
        found = node.cluster.rest.get(f"/api/v1/namespaces/{namespace}/pods/root")
        (status,) = found["status"].get("containerStatuses", [{}])
        return bool(status["state"]["waiting"]["reason"] == "CreateContainerConfigError") if status else False

    eventually(reason, what="refused")


def test_a_pod_that_takes_too_much_memory_is_killed(run: Callable[..., Object]) -> None:
    eater = run(
        *("eater", "python3", "-c", "x = bytearray(1 << 28)"),
        phase="Failed",
        resources={"limits": {"memory": "64Mi"}},
    )
    (status,) = eater["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"
    assert status["state"]["terminated"]["exitCode"] == 137


def test_a_pod_gets_no_more_cpu_than_its_limit(
    node: Node, run: Callable[..., Object], namespace: str
) -> None:
    spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    run("spinner", "python3", "-c", spin, phase="Succeeded", resources={"limits": {"cpu": "200m"}})
    used_s = float(node.cluster.kubectl("logs", f"--namespace={namespace}", "spinner").stdout)
    assert used_s < 0.8  # 0.4 of 2 s, and what it takes to start; less where others use the machine too


def test_a_killed_container_is_started_again(node: Node, images: dict[str, str], namespace: str) -> None:
    body = pod("phoenix", images["worker"], "sleep", "infinity")
    body["spec"]["restartPolicy"] = "Always"
    path = f"/api/v1/namespaces/{namespace}/pods"
    node.cluster.rest.create(path, body)

    def restarts() -> int | None:
        found = node.cluster.rest.get(f"{path}/phoenix")
        (status,) = found["status"].get("containerStatuses", [{}])
        return status["restartCount"] if "running" in status.get("state", {}) else None

    eventually(lambda: restarts() == 0, timeout_s=READY_SECONDS, what="it runs")
    node.ctr("task", "kill", "--signal=SIGKILL", container_id(node, f"{path}/phoenix"))
    eventually(lambda: restarts() == 1, timeout_s=READY_SECONDS, what="it runs again")


def container_id(node: Node, path: str) -> str:
    (status,) = node.cluster.rest.get(path)["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")


def test_the_processes_of_a_container_are_known_outside(node: Node, run: Callable[..., Object]) -> None:
    sleeper = run("sleeper", "sleep", "4242")
    (pid,) = node.pids(sleeper)
    command = Path(f"/proc/{pid}/cmdline")  # empty while the kernel replaces runc by the command
    eventually(lambda: command.read_bytes() == b"sleep\x004242\x00", what=f"{pid} is the sleeper")


def test_a_service_leads_to_a_pod_from_here_from_other_pods_and_from_itself(
    node: Node, run: Callable[..., Object], namespace: str
) -> None:
    run("web", *SERVE, readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 1})
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    service = node.cluster.rest.create(
        f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "web"}, "spec": spec}
    )
    url = f"http://{service['spec']['clusterIP']}/"
    eventually(partial(fetched, url), what=f"{url} answers here")
    fetch = ("python3", "-c", f"from urllib.request import urlopen as o; print(o({url!r}, timeout=5).status)")
    run("other", *fetch, phase="Succeeded")
    said = node.cluster.kubectl("exec", f"--namespace={namespace}", "web", "--", *fetch).stdout
    assert said.strip() == "200"


def fetched(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  our own pod
            return bool(answer.status == 200)
    except OSError:
        return False


def test_pods_know_services_by_name_and_no_other_names(
    node: Node, run: Callable[..., Object], namespace: str
) -> None:
    web = run("web", *SERVE, readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 1})
    for name, more in (("site", {}), ("headless", {"clusterIP": "None"})):
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **more}
        path = f"/api/v1/namespaces/{namespace}/services"
        address = node.cluster.rest.create(path, {"metadata": {"name": name}, "spec": spec})["spec"][
            "clusterIP"
        ]
        wanted = web["status"]["podIP"] if more else address
        known = (
            name,
            f"{name}.{namespace}",
            f"{name}.{namespace}.svc",
            f"{name}.{namespace}.svc.cluster.local",
        )
        for each in known:
            eventually(partial(resolves, node, namespace, each, wanted), what=f"{each} is {wanted}")
    for each in ("nothing", f"site.{namespace}x.svc", "example.com"):
        assert resolved(node, namespace, each) == ""


def resolves(node: Node, namespace: str, name: str, address: str) -> bool:
    return resolved(node, namespace, name) == address


def resolved(node: Node, namespace: str, name: str) -> str:
    """What a name is in the pod `web`; nothing when it is not known."""
    script = f"import socket\ntry: print(socket.gethostbyname({name!r}))\nexcept socket.gaierror: pass"
    command = ("exec", f"--namespace={namespace}", "web", "--", "python3", "-c", script)
    return node.cluster.kubectl(*command).stdout.strip()


def test_a_pod_reaches_the_api_server_and_nothing_outside(run: Callable[..., Object]) -> None:
    script = (
        "import os, socket\n"
        "socket.create_connection((os.environ['KUBERNETES_SERVICE_HOST'], 443), 5)\n"
        "try: socket.create_connection(('192.0.2.1', 80), 5)\n"
        "except OSError: print('shut in')\n"
        "else: raise SystemExit('it got out')"
    )
    run("caller", "python3", "-c", script, phase="Succeeded")


def test_logs_and_port_forward_work(node: Node, run: Callable[..., Object], namespace: str) -> None:
    run("web", *SERVE, readinessProbe={"tcpSocket": {"port": 8080}, "periodSeconds": 1})
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kubectl = ("--kubeconfig", str(node.cluster.kubeconfig), f"--namespace={namespace}")
    with running(binary("kubectl"), *kubectl, "port-forward", "pod/web", f"{port}:8080") as forward:
        forward.wait_line("Forwarding from 127")
        assert fetched(f"http://127.0.0.1:{port}/")
    logs = node.cluster.kubectl("logs", f"--namespace={namespace}", "web").stdout
    eventually(lambda: "GET / HTTP/1.1" in node.cluster.kubectl("logs", kubectl[2], "web").stdout, what=logs)


def test_a_redis_keeps_its_data_when_its_pod_is_replaced(
    node: Node, images: dict[str, str], namespace: str
) -> None:
    assert images["redis"]
    redis = node.redis(namespace)
    with redis.client() as client:
        client.set("kept", "value")
    node.cluster.kubectl("delete", "pod", f"--namespace={namespace}", "--selector=app=redis")

    def kept() -> bool:
        try:
            with redis.client() as client:
                return bool(client.get("kept") == "value")
        except (RedisConnectionError, RedisTimeoutError):
            return False

    eventually(kept, timeout_s=READY_SECONDS, what="it has its data again")


def test_containers_outlive_a_killed_kubelet_which_is_mended(node: Node, run: Callable[..., Object]) -> None:
    before = run("sleeper", "sleep", "infinity")
    node.kubelet.kill()
    assert not node.kubelet.alive
    node.mend()
    assert node.ready
    assert node.pids(before)
