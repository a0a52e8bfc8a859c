"""A Redis in a pod: the same address for ever, and data that outlives the pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.node.harness.node import Node

IMAGE: Final = "localhost/redis:test"
PORT: Final = 6379
USER: Final = 65532
READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeRedis:
    """Reached by pods and by this machine alike."""

    namespace: str
    name: str
    host: str

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{PORT}/0"

    @property
    def spec(self) -> dict[str, Any]:
        """What a DelayQueue says about it."""
        return {"standalone": {"host": self.host, "port": PORT}}

    def client(self) -> Redis:
        """Close it, or use it in a `with` block."""
        return Redis(self.host, PORT, socket_timeout=20, decode_responses=True)


def start(node: Node, namespace: str, name: str, *args: str, host: str | None = None) -> NodeRedis:
    """Make it, and return when it answers; more arguments are redis-server's own."""
    data = node.run_dir / "redis" / namespace / name
    data.mkdir(parents=True)
    data.chmod(0o777)
    service = node.cluster.rest.create(f"/api/v1/namespaces/{namespace}/services", _service(name, host))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    node.cluster.rest.create(path, _deployment(name, str(data), args))
    redis = NodeRedis(namespace, name, service["spec"]["clusterIP"])
    eventually(
        partial(_available, node, f"{path}/{name}"), timeout_s=READY_SECONDS, what=f"Redis {name} is ready"
    )
    with redis.client() as client:
        eventually(client.ping, what=f"Redis answers at {redis.url}")
    return redis


def _available(node: Node, path: str) -> bool:
    status = node.cluster.rest.get(path).get("status", {})
    return bool(status.get("availableReplicas", 0))


def _service(name: str, host: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": {"app": name}, "ports": [{"port": PORT}]}
    return {"metadata": {"name": name}, "spec": spec | ({"clusterIP": host} if host else {})}


def _deployment(name: str, data: str, args: tuple[str, ...]) -> dict[str, Any]:
    labels = {"app": name}
    spec = {
        "replicas": 1,
        # Never two on the same data.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(data, args)},
    }
    return {"metadata": {"name": name}, "spec": spec}


def _pod(data: str, args: tuple[str, ...]) -> dict[str, Any]:
    command = ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(PORT)]  # noqa: S104  a pod
    durable = ["--dir", "/data", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    container = {
        "name": "redis",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [*command, *durable, *args],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "containers": [container],
        "volumes": [{"name": "data", "hostPath": {"path": data, "type": "Directory"}}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # It comes back at once when a test drains the node: it stands for a Redis elsewhere.
        "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
    }
