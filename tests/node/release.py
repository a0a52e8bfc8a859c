"""The chart, installed with Helm as users install it: the operator is a pod, and serves every namespace."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.harness.resources import found, make_namespace
from tests.cluster.harness.waiting import eventually
from tests.exposition import total
from tests.offline.chart import CHART, NAMESPACE, RELEASE

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.node.harness.node import Node
    from tests.node.harness.redis import NodeRedis

READY_SECONDS: Final = 60
PORT: Final = 8080
LOGIN, USER, PASSWORD = "test-redis", "helm-test", "pass/word"
"""What `helm test` logs in with."""
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-operator"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass
class Release:
    """The installed chart. `redis` is one that `helm test` may use, in the namespace of the release."""

    node: Node
    redis: NodeRedis
    values: dict[str, Any]

    @classmethod
    def install(cls, node: Node, images: dict[str, str]) -> Release:
        """Install it, and return when its operator leads."""
        make_namespace(node.cluster, NAMESPACE)
        redis = node.redis(NAMESPACE)
        with redis.client() as connection:
            connection.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
        login = {"metadata": {"name": LOGIN}, "stringData": {"username": USER, "password": PASSWORD}}
        node.cluster.rest.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", login)
        auth = {each: {"name": LOGIN} for each in ("usernameSecretRef", "passwordSecretRef")}
        values = {
            "image": _image(images["operator"]),
            "worker": {"image": _image(images["worker"])},
            "test": {"redis": {**redis.spec, "auth": auth}},
            "log": {"level": "debug"},
            "replicas": 1,  # whose pod and metrics the tests read
        }
        release = cls(node, redis, values)
        release.helm("install")
        release.wait_ready()
        return release

    def helm(self, verb: str, **values: Any) -> str:  # noqa: ANN401  parts of values.yaml
        """Install or upgrade, with more values by keyword."""
        given = self.node.cluster.dir / "values.json"
        given.write_text(json.dumps(self.values | values))
        args = (verb, RELEASE, str(CHART), f"--namespace={NAMESPACE}", f"--values={given}")
        return self.node.cluster.helm(*args).stdout

    def test(self) -> str:
        """What `helm test` says; raises CommandFailed with all of it when the test fails."""
        done = self.node.cluster.helm("test", RELEASE, f"--namespace={NAMESPACE}")
        return done.stdout + done.stderr

    def wait_ready(self, *, timeout_s: float = READY_SECONDS) -> None:
        """Until one operator pod is ready, leads, and DelayQueues are served."""
        rest = self.node.cluster.rest
        eventually(
            lambda: rest.get(DEPLOYMENT)["status"].get("availableReplicas"),
            timeout_s=timeout_s,
            what="operator is available",
        )
        eventually(
            lambda: self.metric("delayq_operator_leader") == 1, timeout_s=timeout_s, what="operator leads"
        )
        paths = ("/apis/delayq.dev/v1alpha1/delayqueues", "/openapi/v3/apis/delayq.dev/v1alpha1")
        eventually(
            lambda: all(found(self.node.cluster, path) for path in paths), what="DelayQueues are served"
        )

    @property
    def pod(self) -> Object:
        """The operator's pod."""
        selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=operator"
        pods = self.node.cluster.rest.items(PODS, labelSelector=selector)
        (one,) = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        return one

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum of one of the operator's metrics over all label values but those given; 0 without a sample."""
        url = f"http://{self.pod['status']['podIP']}:{PORT}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return total(answer.read().decode(), name, labels)


def _image(name: str) -> dict[str, str]:
    repository, _, tag = name.rpartition(":")
    return {"repository": repository, "tag": tag}
