"""kubectl dq in a cluster: what it says of queues, how it stops them, and what it says when something is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.plugin import ForkedPlugin

if TYPE_CHECKING:
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
    assert sum(line.startswith("orders-worker-") and " 0/1 " in line for line in rest) == 2
    assert any(" Normal " in line and " Created " in line for line in rest)
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    said = dq.out("status", "orders")
    assert said.startswith(f"orders in {world.namespace}: ready for ")
    assert "\n!  Ready" not in said
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
    assert dq.out("status", "-l", "team=post", "-o", "jsonpath={.items[*].metadata.name}") == "parcels"
    _, line = dq.out("status", "-l", "team=post").splitlines()
    assert line.split()[0] == "parcels"
    [found] = json.loads(dq.out("status", "-l", "team!=post", "-ojson"))["items"]
    assert found["metadata"]["name"] == "orders"
    assert yaml.safe_load(dq.out("status", "orders", "-o", "yaml"))["status"]["conditions"]
    assert 'output format "nonsense"' in dq.err("status", "-o", "nonsense", code=1)


def test_suspend_stops_tasks_and_reconcile_suspend_the_reconciliation(dq: ForkedPlugin, world: World) -> None:
    world.start()
    with dq.started("status", "--watch", "-o", "jsonpath={.spec.suspend},") as watching:
        assert watching.stdout is not None
        assert watching.stdout.read(6) == "false,"
        assert "claim nothing" in dq.out("suspend", "orders")
        assert watching.stdout.read(5) == "true,", "the queue is there again"
        watching.terminate()
        assert watching.wait(20), "it is kubectl itself"
    assert world.queue()["spec"]["suspendPolicy"] == "Hold"
    assert "orders suspended" in dq.out("suspend", "orders"), "as often as one likes"
    assert "workers start tasks again" in dq.out("resume", "orders")
    assert world.queue()["spec"]["suspend"] is False
    assert "workers stop" in dq.out("suspend", "orders", "--drain")
    assert world.queue()["spec"]["suspendPolicy"] == "Drain"

    assert "changes no children" in dq.out("reconcile", "suspend", "orders")
    world.until("Progressing", "Unknown", "ReconciliationSuspended")
    assert "changes no children" in dq.out("reconcile", "suspend", "orders")
    assert "ReconciliationSuspended" in dq.out("status", "orders")
    assert "reconciliation is suspended" in dq.run("suspend", "orders").stderr
    assert "spec.suspend is true" in dq.run("reconcile", "resume", "orders").stderr
    world.until("Progressing", "True")
    assert "the children follow the spec again" in dq.out("reconcile", "resume", "orders")


def test_a_name_that_is_none_is_answered_with_what_lists_them(dq: ForkedPlugin, world: World) -> None:
    """By every command; a name completes."""
    world.create()
    for words in (("status", "order"), ("suspend", "order"), ("top", "order"), ("forecast", "order")):
        assert dq.err(*words, code=6) == (
            'error: delayqueues.delayq.dev "order" not found\n'
            "hint:  kubectl dq status lists queues; -n names a namespace\n"
        )
    assert dq.err("report", "order", code=6)
    # kubectl asks for what may follow.
    assert "status\t" in dq.run("", script="kubectl_complete-dq").stdout
    assert dq.run("status", "or", script="kubectl_complete-dq").stdout == "orders\n:4\n"
    assert dq.run("task", "get", "or", script="kubectl_complete-dq").stdout == "orders\n:4\n"


def test_options_of_kubectl_are_taken_and_missing_permissions_are_named(
    dq: ForkedPlugin, world: World
) -> None:
    world.create()
    elsewhere = ForkedPlugin(world.cluster, "kube-public")
    assert "orders" in elsewhere.out("status", f"--namespace={world.namespace}")
    assert "context" in dq.err("--context", "nowhere", "status", code=2)
    assert dq.out("status", "--kubeconfig", str(world.cluster.kubeconfig)).startswith("NAME")
    world.kubectl("create", "serviceaccount", "nobody")
    kubeconfig = world.cluster.kubeconfig_for(world.namespace, "nobody")
    nobody = ForkedPlugin(world.cluster, world.namespace, kubeconfig)
    said = nobody.err("status", "orders", code=5)
    assert said.startswith("error: not allowed: ")
    assert 'cannot get resource "delayqueues" in API group "delayq.dev"' in said
    assert said.endswith("\nhint:  ask for this right; kubectl auth can-i --list shows yours\n")
    assert 'cannot get resource "deployments"' in nobody.err("task", "list", "orders", code=5)


def test_where_no_scanner_runs_it_is_said_what_says_why(dq: ForkedPlugin, world: World) -> None:
    """Nothing runs the pods here; one of these queues has none."""
    world.start()
    world.create("unscanned", scanner={"replicas": 0})
    world.settle()
    for name in ("orders", "unscanned"):
        said = dq.err("task", "list", name, code=4)
        assert said.endswith("\nhint:  no scanner pod runs: kubectl dq status NAME\n")
        assert dq.err("schedule", name, "-", text="1", code=4) == said


def test_a_queue_that_no_operator_serves_is_said_to_be_so(dq: ForkedPlugin, world: World) -> None:
    world.operator.process.pause()
    try:
        world.create()
        assert "no operator has reconciled it yet" in dq.out("status", "orders")
        assert "NoOperator" in dq.out("status")
    finally:
        world.operator.process.resume()
