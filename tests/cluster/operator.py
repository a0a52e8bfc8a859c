"""The real operator as a process of its own, with the rights that the chart gives it and a bound token."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.harness.resources import apply
from tests.cluster.harness.waiting import eventually
from tests.exposition import total
from tests.processes import Process

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster
    from tests.servers import RedisServer

COMMAND = str(Path(sys.executable).with_name("delayq-operator"))
CHART = str(Path(__file__).parents[2] / "charts" / "delayq")
RELEASE = "delayq"
PLACEHOLDER = "namespace-number-{:03}"
"""For the name of a namespace, which Helm need not know."""
QUEUES = "/apis/delayq.dev/v1alpha1/namespaces/{namespace}/delayqueues"


def install_rights(
    cluster: Cluster,
    namespace: str,
    *,
    everywhere: bool = False,
    also: tuple[str, ...] = (),
    chart: str = CHART,
) -> Path:
    """Apply the chart's ServiceAccount, roles and policy to a namespace, or to all; a kubeconfig with just these."""
    text = _rights(cluster, chart, 0 if everywhere else 1 + len(also))
    for number, name in enumerate((namespace, *also)):
        text = text.replace(PLACEHOLDER.format(number), name)
    bodies = [body for body in yaml.load_all(text, Loader=yaml.CSafeLoader) if body]
    for body in bodies:
        apply(cluster, body, namespace)
    (account,) = [body["metadata"]["name"] for body in bodies if body["kind"] == "ServiceAccount"]
    return cluster.kubeconfig_for(namespace, account)


@cache
def _rights(cluster: Cluster, chart: str, namespaces: int) -> str:
    """What Helm makes of the chart for so many namespaces, the first of which is its own; 0: for all."""
    served = [PLACEHOLDER.format(number) for number in range(namespaces)]
    values = "localImages=true" + (f",watchNamespaces={{{','.join(served)}}}" if served else "")
    return cluster.helm(
        *("template", RELEASE, chart, f"--namespace={PLACEHOLDER.format(0)}", "--set", values),
        *(f"--show-only=templates/{each}.yaml" for each in ("rbac", "podpolicy", "serviceaccount")),
    ).stdout


@dataclass
class Operator:
    """A running operator."""

    process: Process
    port: int

    @classmethod
    def start(
        cls,
        kubeconfig: Path,
        namespace: str,
        *args: str,
        everywhere: bool = False,
        fork: bool = False,
        **env: str,
    ) -> Operator:
        """Start it, serving one namespace or all; up when it answers probes, which is before it leads."""
        scope = () if everywhere else ("--namespace", namespace)
        usual = ("--worker-image=delayq-worker:test", "--port=0", "--log-format=console")
        argv = (COMMAND, *usual, *scope, "--lease-namespace", namespace, *args)
        begin = Process.quick if fork else Process.start
        process = begin(*argv, env={"KUBECONFIG": str(kubeconfig), "POD_NAME": "", **env})
        line = process.wait_line(r"started .*port=\d+")
        return cls(process, int(line.rpartition("port=")[2]))

    @classmethod
    def fork(cls, *args: Any, **more: Any) -> Operator:  # noqa: ANN401  as `start` takes them
        """The same without the second of a core that its imports take; for tests that have the fixture `forks`."""
        return cls.start(*args, fork=True, **more)

    def wait_ready(self, *, timeout_s: float = 60) -> Operator:
        """Until it leads and has seen everything."""
        eventually(lambda: self.metric("delayq_operator_leader") == 1, timeout_s=timeout_s, what="leads")
        self.process.wait_http(f"http://127.0.0.1:{self.port}/readyz", timeout_s=timeout_s)
        return self

    def metric(self, name: str, /, **labels: str) -> float:
        """The sum of a metric over all label values but those given; 0 when it has no sample."""
        body = self.process.wait_http(f"http://127.0.0.1:{self.port}/metrics").decode()
        return total(body, name, labels)


def queue(name: str = "orders", **spec: object) -> dict[str, Any]:
    """A DelayQueue with the four lines that it takes; more, or other, by keyword."""
    least = {
        "redis": {"standalone": {"host": "redis-invalid"}},
        "handler": {"python": {"callable": "shop.orders:cancel_unpaid"}},
    }
    return {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": name},
        "spec": least | spec,
    }


def queue_with_code(
    cluster: Cluster,
    namespace: str,
    redis: RedisServer,
    code: str,
    *,
    worker: dict[str, Any] | None = None,
    **spec: object,
) -> dict[str, Any]:
    """A DelayQueue on a real Redis whose handler is `handle` of this code, which is put into a ConfigMap.

    The code finds Redis' address in LEDGER, and the name of its pod in POD.
    """
    body = {"metadata": {"name": "shop-code"}, "data": {"shop.py": code}}
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/configmaps", body)
    env = [
        {"name": "PYTHONPATH", "value": "/code"},
        {"name": "LEDGER", "value": redis.open_url},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    container = {"name": "worker", "env": env, "volumeMounts": [{"name": "code", "mountPath": "/code"}]}
    volume = {"name": "code", "configMap": {"name": "shop-code"}}
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    usual: dict[str, Any] = {
        "redis": {"standalone": {"host": "127.0.0.1", "port": redis.port}},
        "handler": {"python": {"callable": "shop:handle"}},
        "worker": {"template": template, **(worker or {})},
    }
    return queue(**usual | spec)


ABSENT: Final = {
    "ReshardingComplete": "True",
    "CapacityShortfallExpected": "False",
}
"""Conditions that are present only where they apply → the status that absence stands for."""


def condition(body: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a DelayQueue; what its absence means; without status and reason while there is no status."""
    for entry in body.get("status", {}).get("conditions", ()):
        if entry["type"] == kind:
            found: dict[str, Any] = entry
            return found
    status = body.get("status", {})
    means = ABSENT.get(kind, "") if status.get("conditions") else ""
    generation = status.get("observedGeneration")
    return {"status": means, "reason": "", "message": "", "observedGeneration": generation}
