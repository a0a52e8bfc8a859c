"""A Redis in a pod: the same address for ever, and data that outlives the pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from tests.cluster.harness.waiting import eventually

if TYPE_CHECKING:
    from tests.node.harness.node import Node

IMAGE: Final = "localhost/redis:test"
NAME, PORT = "redis", 6379
USER: Final = 65532
READY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeRedis:
    """Reached by pods and by this machine alike."""

    namespace: str
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


def start(node: Node, namespace: str, *, host: str | None = None) -> NodeRedis:
    """Make it, and return when it answers."""
    data = node.run_dir / "redis" / namespace
    data.mkdir(parents=True)
    data.chmod(0o777)
    spec = {"selector": {"app": NAME}, "ports": [{"port": PORT}]} | ({"clusterIP": host} if host else {})
    services = f"/api/v1/namespaces/{namespace}/services"
    service = node.cluster.rest.create(services, {"metadata": {"name": NAME}, "spec": spec})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    node.cluster.rest.create(path, _deployment(str(data)))

    def available() -> bool:
        return bool(node.cluster.rest.get(f"{path}/{NAME}").get("status", {}).get("availableReplicas", 0))

    redis = NodeRedis(namespace, service["spec"]["clusterIP"])
    eventually(available, timeout_s=READY_SECONDS, what="Redis is ready")
    with redis.client() as client:
        eventually(client.ping, what=f"Redis answers at {redis.url}")
    return redis


def _deployment(data: str) -> dict[str, Any]:
    labels = {"app": NAME}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # never two on the same data
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": _pod(data)},
    }
    return {"metadata": {"name": NAME}, "spec": spec}


def _pod(data: str) -> dict[str, Any]:
    command = ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--port", str(PORT)]  # noqa: S104  a pod
    durable = ["--dir", "/data", "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    container = {
        "name": "redis",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [*command, *durable],
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
