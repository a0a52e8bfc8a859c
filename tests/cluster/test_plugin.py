"""kubectl dq in a cluster: what it says of queues, how it stops them, and what it says when something is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.plugin import ForkedPlugin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.world import World

pytestmark = pytest.mark.usefixtures("forks")


@pytest.fixture
def dq(world: World) -> ForkedPlugin:
    return ForkedPlugin(world.cluster, world.namespace)


def test_status_says_what_is_wrong_and_with_which_pod(dq: ForkedPlugin, world: World) -> None:
    """Conditions, pods and events of one queue; what is not as it should be has a mark."""
    assert dq.out("status") == "no DelayQueues here\n"
    world.start(worker={"replicas": 2}, reaper={"suspend": True})  # whose pods come by the minute
    world.event("Created")
    said = dq.out("status", "orders")
    first, _, *rest = said.splitlines()
    assert first.startswith(f"orders in {world.namespace}: not ready for ")
    assert "No scanner is ready" in first
    assert any(line.split() == ["workers", "0", "of", "2", "ready,", "2", "desired"] for line in rest)
    assert any(line.startswith("scaling") and "spec.worker.replicas" in line for line in rest)
    assert any(line.startswith("!  Ready ") and "ScannersNotReady" in line for line in rest)
    assert any(line.startswith("✓  ScalingLimited ") for line in rest)
    assert sum(line.startswith("orders-worker-") and " not ready " in line for line in rest) == 2
    assert any(" Normal " in line and " Created " in line for line in rest)
    found = json.loads(dq.out("status", "orders", "-o", "json"))
    assert {pod["component"] for pod in found["pods"]} == {"scanner", "worker"}
    assert found["status"]["conditions"]
    assert yaml.safe_load(dq.out("status", "orders", "-o", "yaml"))["namespace"] == world.namespace
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    said = dq.out("status", "orders", "--events=0")
    assert said.startswith(f"orders in {world.namespace}: ready for ")
    assert ("EVENT" in said, "\n!  Ready" in said) == (False, False)
    it_has_the_outputs_and_the_selector_of_kubectl_get(dq, world)


def it_has_the_outputs_and_the_selector_of_kubectl_get(dq: ForkedPlugin, world: World) -> None:
    """Without a name, it is a line for each queue of the namespace, or of all of them."""
    world.create("parcels")
    world.until("Ready", "False", name="parcels")
    header, *lines = dq.through_kubectl("status").splitlines()
    assert header.split()[:3] == ["NAME", "READY", "DUE"]
    assert [line.split()[:2] for line in lines] == [["orders", "True"], ["parcels", "False"]]
    header, *lines = dq.out("status", "-A").splitlines()
    assert header.split()[0] == "NAMESPACE"
    assert [world.namespace, "orders"] in [line.split()[:2] for line in lines]
    world.kubectl("label", "delayqueue/parcels", "team=post")
    named = dq.out("status", "-o", "name").split()
    assert named == [f"delayqueue.delayq.dev/{each}" for each in ("orders", "parcels")]
    assert dq.out("status", "-l", "team=post", "-o", "jsonpath={.items[*].metadata.name}") == "parcels\n"
    header, line = dq.out("status", "-l", "team=post", "-o", "wide").splitlines()
    assert header.split()[-3:] == ["SCANNERS", "REDIS", "AGE"]
    assert line.split()[0] == "parcels"
    assert [each["name"] for each in json.loads(dq.out("status", "-l", "team!=post", "-o", "json"))] == [
        "orders"
    ]
    assert "expected table, wide" in dq.err("status", "-o", "nonsense", code=2)


def test_hold_stops_tasks_and_pause_the_reconciliation(dq: ForkedPlugin, world: World) -> None:
    world.start()
    with dq.started("status", "--watch", "-o", "json") as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout.readline, "")
        assert next(lines) == "[\n"
        assert "claim nothing" in dq.out("hold", "orders")
        assert "[\n" in lines, "the queue is there again"
        watching.terminate()
    assert world.queue()["spec"]["stopPolicy"] == "Hold"
    assert "already Hold" in dq.out("hold", "orders")
    assert "workers start tasks again" in dq.out("unhold", "orders")
    assert world.queue()["spec"]["stopPolicy"] == "None"
    assert "workers stop" in dq.out("hold", "orders", "--drain")
    assert world.queue()["spec"]["stopPolicy"] == "HoldAndDrain"

    assert "changes no children" in dq.out("reconcile", "pause", "orders")
    world.until("Paused", "True")
    assert "already paused" in dq.out("reconcile", "pause", "orders")
    assert "paused" in dq.out("status", "orders")
    assert "reconciliation is paused" in dq.run("hold", "orders").stderr
    assert "spec.stopPolicy is Hold" in dq.run("reconcile", "resume", "orders").stderr
    world.until("Paused", "False")
    assert "not paused" in dq.out("reconcile", "resume", "orders")


def _with_namespace(config: dict[str, Any], namespace: str) -> dict[str, Any]:
    for each in config["contexts"]:
        each["context"]["namespace"] = namespace
    return config


def test_a_name_that_is_none_is_answered_with_the_nearest(
    dq: ForkedPlugin, world: World, tmp_path: Path
) -> None:
    """And with the namespace: the one that was named, the context's, or default."""
    config = tmp_path / "kubeconfig"
    config.write_bytes(world.cluster.kubeconfig.read_bytes())
    bare = ForkedPlugin(world.cluster, "", config)
    assert bare.err("status", "order", code=6).startswith(
        'error: no DelayQueue "order" in namespace default\n'
    )
    world.create()
    config.write_text(yaml.safe_dump(_with_namespace(yaml.safe_load(config.read_text()), world.namespace)))
    assert f"in namespace {world.namespace}\n" in bare.err("status", "order", code=6)
    said = dq.err("status", "order", code=6)
    assert (
        said == f'error: no DelayQueue "order" in namespace {world.namespace}\nhint:  did you mean orders?\n'
    )
    assert "there is orders; -n selects another namespace" in dq.err("top", "xyzzy", code=6)
    assert "there is none in kube-public; -n selects another namespace" in dq.err(
        "top", "orders", "-n", "kube-public", code=6
    )
    assert dq.err("report", "order", code=6)
    # kubectl asks for what may follow.
    assert "status\t" in dq.run("", script="kubectl_complete-dq").stdout
    assert dq.run("status", "or", script="kubectl_complete-dq").stdout == "orders\n:4\n"


def test_options_of_kubectl_are_taken_and_who_may_not_is_told_what(
    dq: ForkedPlugin, world: World, tmp_path: Path
) -> None:
    world.create()
    assert "orders" in ForkedPlugin(world.cluster, "kube-public").out(
        "status", f"--namespace={world.namespace}"
    )
    empty = tmp_path / "kubeconfig"
    empty.write_text("apiVersion: v1\nkind: Config\n")
    assert "context" in dq.err("--context", "nowhere", "status", code=2)
    unreachable = dq.err("status", "--kubeconfig", str(empty), code=4)
    assert unreachable.startswith("error: cannot reach the API server")
    assert dq.out("status", "--kubeconfig", str(world.cluster.kubeconfig)).startswith("NAME")
    world.kubectl("create", "serviceaccount", "nobody")
    nobody = ForkedPlugin(
        world.cluster, world.namespace, world.cluster.kubeconfig_for(world.namespace, "nobody")
    )
    said = nobody.err("status", "orders", code=5)
    assert said.startswith("error: not allowed: ")
    assert f"kubectl auth can-i get delayqueues.delayq.dev -n {world.namespace}" in said


def test_where_redis_cannot_be_reached_it_is_said_why(dq: ForkedPlugin, world: World) -> None:
    """Nothing runs the pods here. No port of another namespace is forwarded unless the user names that."""
    world.create()
    said = dq.err("task", "list", "orders", code=4)
    assert said.startswith("error: no scanner pod of orders is available: ")
    assert "kubectl dq status orders" in said
    forward = ("task", "list", "orders", "--port-forward")
    assert "expected spec.redis.standalone.host to name a Service" in dq.err(*forward, code=2)

    # Who edits a DelayQueue chooses the host; the rights are those of the user who runs the command.
    world.create("elsewhere", redis={"standalone": {"host": "kubernetes.default.svc", "port": 443}})
    listed = ("task", "list", "elsewhere")
    for asked in ((), ("--port-forward",), ("--port-forward", "--redis-namespace=shop")):
        assert dq.err(*listed, *asked, code=5) == (
            "error: spec.redis of elsewhere names a Service of another namespace, default/kubernetes\n"
            "hint:  --redis-namespace=default lets kubectl port-forward connect to it\n"
        )
    allowed = dq.run(*listed, "--redis-namespace=default")
    assert "another namespace" not in allowed.stderr

    # kubectl port-forward would wait for a pod.
    spec = {"ports": [{"port": 6379}], "selector": {"app": "redis"}}
    world.make("services", {"metadata": {"name": "redis"}, "spec": spec})
    world.create("down", redis={"standalone": {"host": "redis"}})
    for asked in ((), ("--port-forward",)):
        assert dq.err("task", "list", "down", *asked, code=4) == (
            f"error: Redis of down cannot be reached: no pod runs behind Service {world.namespace}/redis\n"
            f"hint:  kubectl describe service redis -n {world.namespace}\n"
        )


def test_a_queue_that_no_operator_serves_is_said_to_be_so(dq: ForkedPlugin, world: World) -> None:
    world.operator.process.pause()
    try:
        world.create()
        assert "no operator has reconciled it yet" in dq.out("status", "orders")
        assert "NoOperator" in dq.out("status")
    finally:
        world.operator.process.resume()


def test_without_kubectl_or_the_crd_it_says_what_to_do(dq: ForkedPlugin, tmp_path: Path) -> None:
    """Another group stands for a cluster that has never heard of us."""
    done = dq.run("status", KUBECTL="/nowhere/kubectl")
    said = "error: cannot run /nowhere/kubectl: No such file or directory\n"
    assert (done.returncode, done.stderr) == (1, f"{said}hint:  install it, or name it in $KUBECTL\n")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        '#!/bin/sh\nexec "$REAL" $(echo "$@" | sed s/delayqueues.delayq.dev/delayqueues.nobody.dev/)\n'
    )
    kubectl.chmod(0o755)
    done = dq.run("status", KUBECTL=str(kubectl), REAL=dq.kubectl)
    assert done.returncode == 4
    assert done.stderr.startswith("error: this cluster has no DelayQueues: the CRD is not installed\nhint:  ")
