"""Pausing, resuming and ending: a DelayQueue goes when it is deleted, with its tasks or without, and comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, condition, install_rights, queue
from tests.cluster.world import World, forbidden

if TYPE_CHECKING:
    from tests.cluster.harness.control_plane import ControlPlane


DELETE: Final = {"deletionPolicy": "Delete"}
INVALID: Final = {"reaper": {"template": {"spec": {"restartPolicy": "Always"}}}}
"""Fits the schema, and cannot be realised."""

CHILDREN: Final = 8
COLLECTED_S: Final = 75
"""Kubernetes looks every half minute for kinds it has not known; ours is that new in a test."""


def finalizers(world: World) -> list[str]:
    return list(world.queue()["metadata"].get("finalizers", ()))


def gone(world: World, *, timeout_s: float = 20) -> None:
    eventually(lambda: not world.there(names.PLURAL, "orders"), timeout_s=timeout_s, what="it is gone")


def nothing_left(world: World, *kinds: str) -> None:
    """Kubernetes has collected every child, but for some kinds."""

    def look() -> bool:
        left = world.children()
        assert {plural for plural, _ in left} <= set(kinds), left
        return True

    eventually(look, timeout_s=COLLECTED_S, what="children are collected")


# --- Pausing.


def test_a_paused_queue_is_left_alone_and_its_status_is_true(world: World) -> None:
    """While it is paused neither drift nor the spec changes anything; resumed, both are made up for."""
    world.start()
    world.annotate(paused="true")
    world.until("Paused", "True", "PausedByAnnotation")
    world.event("Paused")
    mark = world.enqueue()
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    assert world.queue()["status"]["readyReplicas"] == 1
    world.edit(**INVALID)
    world.until("Accepted", "False", "InvalidSpec")
    world.edit(reaper={"template": None, "schedule": "*/9 * * * *"})
    world.until("Accepted", "True")
    world.patch("deployments", "orders-scanner", {"spec": {"replicas": 9}})
    world.delete("deployments", "orders-worker")
    world.until("Ready", "False")
    world.until("Progressing", "False", "DeploymentNotFound")
    world.nudge()
    assert not world.there("deployments", "orders-worker")
    assert world.get("deployments", "orders-scanner")["spec"]["replicas"] == 9
    assert world.get("cronjobs", "orders-reaper")["spec"]["schedule"] != "*/9 * * * *"
    assert [words for words in world.written(mark) if "delayqueues" not in words] == []
    assert world.events("Repaired") == []

    world.annotate(paused=None)
    world.until("Paused", "False")
    world.event("Resumed")
    eventually(lambda: world.there("deployments", "orders-worker"), timeout_s=5)
    eventually(lambda: world.get("deployments", "orders-scanner")["spec"]["replicas"] == 2, timeout_s=5)
    eventually(lambda: world.get("cronjobs", "orders-reaper")["spec"]["schedule"] == "*/9 * * * *")


def test_a_paused_queue_makes_no_children_and_a_word_that_does_not_pause_is_told(world: World) -> None:
    """One that is created paused has a status, and nothing else until it is resumed."""
    metadata = {"name": "orders", "annotations": {names.PAUSED: "true"}}
    world.make(names.PLURAL, queue() | {"metadata": metadata})
    world.until("Paused", "True")
    world.nudge()
    assert world.children() == set()
    world.annotate(paused="yes")
    told = world.until("Paused", "False", "InvalidAnnotation")["message"]
    assert '"yes", neither true nor false' in told
    world.event("InvalidAnnotation", '"yes"')
    eventually(lambda: len(world.children()) == CHILDREN)
    world.annotate(paused="false")
    world.until("Paused", "False")


# --- What a policy says.


def test_the_finalizer_follows_the_policy(world: World) -> None:
    """Switching between Delete and Retain adds and removes our finalizer, and no other."""
    world.start()
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": ["shop.example/theirs"]}})
    for policy, ours in (
        ("Delete", [names.ERASE_FINALIZER]),
        ("Retain", []),
        ("Delete", [names.ERASE_FINALIZER]),
    ):
        world.edit(deletionPolicy=policy)
        _until_finalizers(world, "shop.example/theirs", *ours)
    world.edit(deletionPolicy="Retain")
    _until_finalizers(world, "shop.example/theirs")
    world.edit(**INVALID, **DELETE)  # it counts also while the rest of the document makes no sense
    _until_finalizers(world, "shop.example/theirs", names.ERASE_FINALIZER)
    world.edit(deletionPolicy="Retain")
    _until_finalizers(world, "shop.example/theirs")
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": None}})


def _until_finalizers(world: World, *expected: str) -> None:
    eventually(lambda: finalizers(world) == list(expected), what=f"finalizers {expected}")


# --- Erasing that does not go well.


def test_an_erasing_that_fails_says_so_and_how_to_go_without(world: World) -> None:
    """A try that fails is told with its last words; the way out that Degraded names works as it stands."""
    world.start(**DELETE)
    world.delete(names.PLURAL, "orders")
    pod = eventually(lambda: world.pods("erase"), what="a pod of the Job")[0]
    end(world, pod, "Failed", "error: cannot reach Redis at redis-invalid:6379")
    told = world.until("Degraded", "True", "EraseFailed")["message"]
    eventually(lambda: "cannot reach Redis" in condition(world.queue(), "Degraded")["message"])
    world.event("EraseFailed")
    assert world.queue()["status"]["erase"]["shards"] == 1
    way_out(world, told)
    gone(world)
    eventually(lambda: not world.there("jobs", "orders-erase"), what="the Job goes too")


def way_out(world: World, told: str) -> None:
    """Run the command that a message ends with."""
    command = told[told.index("kubectl patch") :].removeprefix("kubectl ").split(" -p ")
    world.cluster.kubectl(*command[0].split(), "-p", command[1].strip("'"))


def test_a_job_that_gave_up_can_be_tried_again(world: World) -> None:
    """When the Job has failed for good, deleting it starts another."""
    world.start(**DELETE)
    world.delete(names.PLURAL, "orders")
    first = eventually(lambda: world.uid("jobs", "orders-erase"), what="the Job")
    world.patch("jobs", "orders-erase", {"spec": {"activeDeadlineSeconds": 1}})
    told = eventually(lambda: _failed_for_good(world), what="the Job fails for good")
    assert "Delete the Job to try again" in told
    world.kubectl("delete", "job/orders-erase")
    eventually(lambda: world.uid("jobs", "orders-erase") not in ("", first), what="another Job")
    world.until("Degraded", "False")
    pod = eventually(
        lambda: [pod for pod in world.pods("erase") if "deletionTimestamp" not in pod["metadata"]]
    )[0]
    end(world, pod, "Succeeded")
    gone(world)


def _failed_for_good(world: World) -> str:
    is_now = condition(world.queue(), "Degraded")
    return str(is_now["message"]) if "could not erase" in is_now["message"] else ""


def test_a_job_that_may_not_be_made_is_told(cluster: ControlPlane, world: World) -> None:
    """Where an admission policy forbids the Job, the DelayQueue says so while it waits, and goes on when it may."""
    world.start(**DELETE)
    with forbidden(cluster, world, "batch", "jobs"):
        world.delete(names.PLURAL, "orders")
        told = world.until("Degraded", "True", "EraseFailed")["message"]
        assert "not here" in told
    eventually(lambda: world.there("jobs", "orders-erase"), timeout_s=30, what="the Job is made")


def test_a_secret_that_the_erasing_needs_is_told(world: World) -> None:
    """When the Secret of Redis is gone before the DelayQueue, it says what it waits for."""
    world.make("secrets", {"metadata": {"name": "login"}, "stringData": {"password": "x"}})
    redis = {"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "login"}}}
    world.start(redis=redis, **DELETE)
    world.delete("secrets", "login")
    world.until("Accepted", "False", "ReferenceNotFound")
    world.delete(names.PLURAL, "orders")
    assert "Secret login" in world.until("Accepted", "False", "ReferenceNotFound")["message"]
    world.until("Ready", "False", "Deleting")
    world.make("secrets", {"metadata": {"name": "login"}, "stringData": {"password": "x"}})
    world.until("Accepted", "True")


# --- Going.


def test_retained_tasks_hold_nothing_up(world: World) -> None:
    """With Retain there is no finalizer: the DelayQueue goes at once, and Kubernetes collects every child."""
    world.start()
    assert finalizers(world) == []
    world.delete(names.PLURAL, "orders")
    gone(world, timeout_s=2)
    nothing_left(world)


def test_tasks_are_erased_before_it_goes(world: World) -> None:
    """With Delete workers and scanners stop first, then a Job erases, then the DelayQueue and its children go."""
    world.start(**DELETE)
    assert finalizers(world) == [names.ERASE_FINALIZER]
    since = world.get("deployments", "orders-worker")["metadata"]["resourceVersion"]
    world.delete(names.PLURAL, "orders")
    pod = eventually(lambda: world.pods("erase"), what="a pod of the Job")[0]
    assert not any(world.there("deployments", f"orders-{role}") for role in ("worker", "scanner"))
    assert not world.there("cronjobs", "orders-reaper")
    assert int(world.get("jobs", "orders-erase")["metadata"]["resourceVersion"]) > int(since)
    world.until("Progressing", "True", "Erasing")
    world.until("Ready", "False", "Deleting")
    world.event("Erasing", "orders-erase")
    end(world, pod, "Succeeded")
    gone(world)
    world.event("Erased")
    nothing_left(world)


def end(world: World, pod: dict[str, Any], phase: str, words: str = "") -> None:
    """Report that a pod has ended, as the kubelet would."""
    ended = {"exitCode": 0 if phase == "Succeeded" else 4, "message": words, "reason": "Error"}
    container = {
        "name": "erase",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    status = {"phase": phase, "containerStatuses": [container]}
    world.cluster.rest.patch(f"{world.path('pods', pod['metadata']['name'])}/status", {"status": status})


# --- Going with its namespace.


@pytest.mark.parametrize("before", [(), ("delete", "dq/orders", "--wait=false")], ids=["at once", "after it"])
def test_a_namespace_goes_with_its_queues(
    cluster: ControlPlane, world: World, before: tuple[str, ...]
) -> None:
    """kubectl delete ns needs no help: no Job can run there any more, so the tasks stay, and the log says where."""
    world.start(**DELETE)
    if before:
        world.kubectl(*before)
        eventually(lambda: world.pods("erase"), what="a pod of the Job")
    cluster.kubectl("delete", "namespace", world.namespace, "--timeout=90s")
    line = world.operator.process.wait_line(rf"erase_skipped .*queue={world.namespace}/orders")
    assert "namespace is being deleted" in line


def test_an_operator_lets_the_queues_of_its_own_namespace_go(
    cluster: ControlPlane,
    crd: str,  # noqa: ARG001  the CRD is installed
    namespace: str,
) -> None:
    """Pods of a namespace go before DelayQueues: an operator that is stopped by that takes its finalizers away."""
    operator = Operator.start(install_rights(cluster, namespace), namespace, "--own-namespace", namespace)
    world = World(cluster, operator.wait_ready(), namespace)
    world.start(**DELETE)
    container = {"name": "x", "image": "x"}
    kept = {"name": "kept", "finalizers": ["shop.example/kept"]}
    world.make("pods", {"metadata": kept, "spec": {"containers": [container]}})
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    eventually(lambda: "deletionTimestamp" in world.get("pods", "kept")["metadata"], what="pods go first")
    assert finalizers(world) == [names.ERASE_FINALIZER]
    assert operator.process.stop() == 0
    assert finalizers(world) == [], operator.process.output
    world.patch("pods", "kept", {"metadata": {"finalizers": None}})
    cluster.kubectl("wait", "--for=delete", f"namespace/{namespace}", "--timeout=90s")


# --- Coming again.


def test_a_queue_of_the_same_name_starts_afresh(world: World) -> None:
    """Created right after its predecessor was deleted, it waits for the old children to go, and has its own."""
    world.start(worker={"replicas": 3})
    old = {child: world.uid(*child) for child in world.children()}
    world.delete(names.PLURAL, "orders")
    gone(world, timeout_s=2)
    world.create(worker={"replicas": 2})
    uid = world.queue()["metadata"]["uid"]

    def healthy() -> bool:
        assert world.children() == set(old)
        for child, before in old.items():
            body = world.get(*child)
            assert body["metadata"]["uid"] != before, child
            assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == [uid]
        return bool(world.get("deployments", "orders-worker")["spec"]["replicas"] == 2)

    eventually(healthy, timeout_s=COLLECTED_S, what="new children")
    world.settle()
    world.until("Degraded", "False")
    assert world.until("Progressing", "True")["reason"] != "WaitingForDeletion"


def test_children_left_as_orphans_are_taken_in(world: World) -> None:
    """After kubectl delete --cascade=orphan and another create, the same children go on, and no pod is replaced."""
    world.start()
    old = {child: world.uid(*child) for child in world.children()}
    template = world.get("deployments", "orders-worker")["spec"]["template"]
    world.kubectl("delete", "dq/orders", "--cascade=orphan")
    gone(world)
    assert {child: world.uid(*child) for child in world.children()} == old
    world.start()
    assert {child: world.uid(*child) for child in world.children()} == old
    uid = world.queue()["metadata"]["uid"]
    for child in old:
        assert [o["uid"] for o in world.get(*child)["metadata"]["ownerReferences"]] == [uid]
    assert world.get("deployments", "orders-worker")["spec"]["template"] == template
