"""A DelayQueue is applied: exactly its children come, ours are ours, and what is not wanted any more goes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.cluster import CommandFailed
from tests.cluster.harness.waiting import eventually
from tests.cluster.world import World, managers

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object


MINIMAL: Final = {
    ("configmaps", "orders-config"),
    ("cronjobs", "orders-reaper"),
    ("deployments", "orders-scanner"),
    ("deployments", "orders-worker"),
    ("poddisruptionbudgets", "orders-scanner"),
    ("poddisruptionbudgets", "orders-worker"),
    ("serviceaccounts", "orders-delayq"),
    ("services", "orders-metrics"),
}


def stranger(name: str, **more: Any) -> Object:  # noqa: ANN401
    """A Deployment that has the name of a child, and nothing to do with us."""
    pod = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "shop"}}, "template": pod}
    return {"metadata": {"name": name, **more}, "spec": spec}


def test_a_minimal_document_makes_exactly_these_children_and_what_is_not_wanted_any_more_goes(
    world: World,
) -> None:
    """Four lines of spec make eight children, which belong to it and are ours; the first event names them.

    Switching things off deletes just these children; other objects, labelled like ours or not, stay.
    """
    world.start()
    assert world.children() == MINIMAL
    reported = world.event("Created")
    assert all(name in reported for _, name in MINIMAL)
    uid = world.queue()["metadata"]["uid"]
    for plural, name in MINIMAL:
        metadata = world.get(plural, name)["metadata"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["kind"]) == (uid, True, "DelayQueue")
        labels = {"name": "delayq", "managed-by": "delayq-operator", "instance": "orders"}
        expected = {f"app.kubernetes.io/{key}": label for key, label in labels.items()}
        assert metadata["labels"].items() >= (expected | {"delayq.dev/queue": "orders"}).items()
        ours = [entry for entry in metadata["managedFields"] if entry["manager"] == "delayq-operator"]
        assert [entry["operation"] for entry in ours] == ["Apply"]

    world.make("configmaps", {"metadata": {"name": "labelled", "labels": names.labels("orders", "config")}})
    world.make("configmaps", {"metadata": {"name": "unlabelled"}})
    policy = ("networkpolicies", "orders-delayq")
    world.edit(networkPolicy={"enabled": True})
    eventually(lambda: world.there(*policy))
    world.edit(networkPolicy={"enabled": False}, podDisruptionBudget={"enabled": False})
    budgets = {child for child in MINIMAL if child[0] == "poddisruptionbudgets"}
    eventually(lambda: not {policy, *budgets} & world.children())
    world.event("Pruned", "NetworkPolicy orders-delayq", "PodDisruptionBudget orders-worker")
    assert world.children() == MINIMAL - budgets | {("configmaps", "labelled")}
    assert world.there("configmaps", "unlabelled")
    world.edit(podDisruptionBudget={"enabled": True})
    eventually(lambda: {policy, *budgets} & world.children() == budgets)
    assert world.events("Repaired") == []


def test_no_edit_is_lost_and_fields_are_ours_but_for_replicas_which_are_the_scalers(world: World) -> None:
    """However edits fall between the operator's own writes to the DelayQueue, the last one is done.

    The operator owns what it asks for; the number of workers is the scaler's once it was ever changed.
    """
    world.start(worker={"replicas": 2})
    for number in range(1, 31):
        world.edit(scanner={"replicas": number}, worker={"replicas": 33 - number})

    def done() -> bool:
        loads = [world.get("deployments", f"orders-{name}") for name in ("scanner", "worker")]
        return [load["spec"]["replicas"] for load in loads] == [30, 3]

    eventually(done, timeout_s=5, what="the last edit is done")
    world.until("Progressing", timeout_s=5)
    worker = world.get("deployments", "orders-worker")
    container = ("spec", "template", "spec", "containers", 'k:{"name":"worker"}')
    assert managers(worker, *container, "image") == {names.OPERATOR}
    assert managers(worker, "spec", "replicas") == {names.SCALER}
    (scaler,) = [e for e in worker["metadata"]["managedFields"] if e["manager"] == names.SCALER]
    assert scaler["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert managers(world.get("deployments", "orders-scanner"), "spec", "replicas") == {names.OPERATOR}
    assert managers(world.queue(), "status", "conditions") == {names.OPERATOR}
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "orders-scanner"},
        "spec": {"replicas": 7},
    }
    with pytest.raises(CommandFailed, match='conflict with "delayq-operator"'):
        world.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(theirs))


def test_an_object_of_another_owner_is_never_touched(world: World) -> None:
    """A stranger's Deployment may have the name of a child, or our labels, too: it is made when the stranger goes."""
    owner = world.make("configmaps", {"metadata": {"name": "another"}})["metadata"]["uid"]
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "another",
        "uid": owner,
        "controller": True,
    }
    more = {
        "orders": {},
        "parcels": {"labels": names.labels("parcels", "worker"), "ownerReferences": [reference]},
    }
    for name, metadata in more.items():
        before = world.make("deployments", stranger(f"{name}-worker", **metadata))
        world.create(name)
        reported = world.until("Degraded", "True", "NameConflict", name=name)["message"]
        assert f"Deployment {name}-worker exists and is not managed by the operator" in reported
        world.event("NameConflict", f"{name}-worker", name=name)
        world.nudge(name)
        now = world.get("deployments", f"{name}-worker")
        assert (now["metadata"]["uid"], now["spec"]) == (before["metadata"]["uid"], before["spec"])
        world.delete("deployments", f"{name}-worker")
        world.until("Degraded", "False", "AsExpected", name=name)
        assert world.there("deployments", f"{name}-worker")


def test_a_refused_template_is_reported_with_the_api_servers_message_and_an_edit_corrects_it(
    world: World,
) -> None:
    """Everything else is applied meanwhile."""
    world.create(
        worker={"template": {"spec": {"containers": [{"name": "worker", "imagePullPolicy": "Never!"}]}}}
    )
    reported = world.until("Degraded", "True", "ApplyFailed")["message"]
    assert 'Unsupported value: "Never!"' in reported
    assert "Deployment orders-worker" in reported
    assert world.there("cronjobs", "orders-reaper")
    world.edit(worker={"template": None})
    world.until("Degraded", "False")
    assert world.there("deployments", "orders-worker")


def test_a_paused_rollout_is_reported_and_the_command_in_the_message_resumes_it(world: World) -> None:
    world.start()
    world.until("Degraded", "False")
    world.kubectl("rollout", "pause", "deployment/orders-worker")
    world.until("Progressing", "Unknown", "DeploymentPaused")
    reported = world.until("Degraded", "True", "RolloutPaused")["message"]
    world.kubectl(*reported.split("`")[1].split()[1:])
    world.until("Degraded", "False")
