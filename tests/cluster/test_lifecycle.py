"""Pausing, resuming and ending: a DelayQueue goes when it is deleted, with its tasks or without, and comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator, condition, queue
from tests.cluster.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.rest import Object


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


# --- Reconciliation is suspended.


def test_a_queue_whose_reconciliation_is_suspended_is_left_alone_and_its_status_is_true(world: World) -> None:
    """It has no children until it is resumed. Later neither drift nor the spec changes any."""
    metadata = {"name": "orders", "annotations": {names.SUSPEND_RECONCILIATION: "true"}}
    world.make(names.PLURAL, queue() | {"metadata": metadata})
    world.until("Progressing", "Unknown", "ReconciliationSuspended")
    world.nudge()
    assert world.children() == set()
    world.annotate(suspend_reconciliation="yes")
    reported = world.until("Degraded", "True", "InvalidAnnotation")["message"]
    assert '"yes", neither true nor false' in reported
    world.settle()
    assert len(world.children()) == CHILDREN

    world.annotate(suspend_reconciliation="true")
    world.until("Progressing", "Unknown", "ReconciliationSuspended")
    world.event("ReconciliationSuspended")
    mark = world.enqueue()
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    world.edit(**INVALID)
    world.until("Accepted", "False", "InvalidSpec")
    world.edit(reaper={"template": None, "schedule": "*/9 * * * *"})
    world.until("Accepted", "True")
    world.patch("deployments", "orders-scanner", {"spec": {"replicas": 9}})
    world.delete("deployments", "orders-worker")
    world.until("Ready", "False")
    world.nudge()
    assert [words for words in world.written(mark) if "delayqueues" not in words] == []
    assert world.events("Repaired") == []

    world.annotate(suspend_reconciliation=None)
    world.event("ReconciliationResumed")
    eventually(lambda: world.there("deployments", "orders-worker"), timeout_s=5)
    eventually(lambda: world.get("deployments", "orders-scanner")["spec"]["replicas"] == 2, timeout_s=5)
    eventually(lambda: world.get("cronjobs", "orders-reaper")["spec"]["schedule"] == "*/9 * * * *")


# --- What a policy says.


def test_the_finalizer_follows_the_policy(world: World) -> None:
    """Switching between Delete and Retain adds and removes our finalizer, and no other."""
    world.start()
    theirs = "shop.example/theirs"
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": [theirs]}})
    for spec, ours in (
        (DELETE, [names.ERASE_FINALIZER]),
        ({"deletionPolicy": "Retain"}, []),
        (INVALID | DELETE, [names.ERASE_FINALIZER]),  # while the rest of the document makes no sense
        ({"deletionPolicy": "Retain"}, []),
    ):
        world.edit(**spec)
        expected = [theirs, *ours]
        eventually(lambda expected=expected: finalizers(world) == expected, what=f"finalizers {expected}")  # type: ignore[misc]
    world.patch(names.PLURAL, "orders", {"metadata": {"finalizers": None}})


def pending(world: World) -> list[Object]:
    pods = [pod for pod in world.pods("erase") if pod["status"]["phase"] == "Pending"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def has_failed_for_good(world: World) -> str:
    is_now = condition(world.queue(), "Degraded")
    return str(is_now["message"]) if "could not erase" in is_now["message"] else ""


# --- Erasing.


def test_tasks_are_erased_before_it_goes_and_a_failure_is_reported_with_remedies(world: World) -> None:
    """With Delete workers and scanners stop first, then a Job erases, then the DelayQueue goes.

    A failed try is reported with its last log line; when the Job has failed for good, deleting it starts another.
    """
    login = {"metadata": {"name": "login"}, "stringData": {"password": "x"}}
    world.make("secrets", login)
    redis = {"standalone": {"host": "redis-invalid"}, "auth": {"passwordSecretRef": {"name": "login"}}}
    world.start(redis=redis, **DELETE)
    assert finalizers(world) == [names.ERASE_FINALIZER]
    quotas = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    world.cluster.rest.create(quotas, quota)
    since = world.get("deployments", "orders-worker")["metadata"]["resourceVersion"]
    world.delete(names.PLURAL, "orders")
    rejected = world.until("Degraded", "True", "EraseFailed")["message"]
    assert "The API server rejects the Job that erases the tasks" in rejected
    world.cluster.rest.delete(f"{quotas}/none")
    pod = eventually(lambda: world.pods("erase"), timeout_s=30, what="a pod of the Job")[0]
    assert not any(world.there("deployments", f"orders-{role}") for role in ("worker", "scanner"))
    assert not world.there("cronjobs", "orders-reaper")
    assert int(world.get("jobs", "orders-erase")["metadata"]["resourceVersion"]) > int(since)
    world.until("Progressing", "True", "Erasing")
    world.until("Ready", "False", "Deleting")
    world.event("Erasing", "orders-erase")
    end(world, pod, "Failed", "error: cannot reach Redis at redis-invalid:6379")
    last_words = "cannot reach Redis"
    eventually(lambda: last_words in condition(world.queue(), "Degraded")["message"], what="the last words")
    reported = world.until("Degraded", "True", "EraseFailed")["message"]
    world.event("EraseFailed")
    assert world.queue()["status"]["erase"]["shards"] == 1
    command, _, change = (
        reported[reported.index("kubectl patch") :].removeprefix("kubectl ").partition(" -p ")
    )
    world.cluster.kubectl(*command.split(), "-p", change.strip("'"), "--dry-run=server")

    first = world.uid("jobs", "orders-erase")
    world.patch("jobs", "orders-erase", {"spec": {"activeDeadlineSeconds": 1}})
    reported = eventually(lambda: has_failed_for_good(world), what="the Job fails for good")
    assert "Delete the Job to try again" in reported
    world.kubectl("delete", "job/orders-erase")
    eventually(lambda: world.uid("jobs", "orders-erase") not in ("", first), what="another Job")
    world.until("Degraded", "False")
    end(world, eventually(lambda: pending(world), what="its pod")[0], "Succeeded")
    gone(world)
    world.event("Erased")


def end(world: World, pod: Object, phase: str, words: str = "") -> None:
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


def test_a_namespace_goes_with_its_queues(cluster: ControlPlane, world: World) -> None:
    """kubectl delete ns needs no help: no Job can run there any more, so the tasks stay, and the log says where.

    Also when one of them was deleted before, and has a Job.
    """
    for name in ("orders", "parcels"):
        world.start(name, **DELETE)
    world.delete(names.PLURAL, "parcels")
    eventually(lambda: world.pods("erase", "parcels"), what="a pod of the Job")
    cluster.kubectl("delete", "namespace", world.namespace, "--timeout=90s")
    for name in ("orders", "parcels"):
        line = world.operator.process.wait_line(rf"erase_skipped .*queue={world.namespace}/{name}")
        assert "namespace is being deleted" in line


def test_an_operator_lets_the_queues_of_its_own_namespace_go(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Pods of a namespace go before DelayQueues: an operator that is stopped by that takes its finalizers away."""
    operator = Operator.fork(kubeconfig, namespace, "--own-namespace", namespace)
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


def test_a_queue_of_the_same_name_starts_afresh_or_takes_in_orphans(world: World) -> None:
    """With Retain it goes at once. The next one waits for the old children to go, and has its own.

    After kubectl delete --cascade=orphan and another create, the same children go on, and no pod is replaced.
    """
    world.start(worker={"replicas": 3})
    assert finalizers(world) == []
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

    kept = {child: world.uid(*child) for child in old}
    template = world.get("deployments", "orders-worker")["spec"]["template"]
    world.kubectl("delete", "dq/orders", "--cascade=orphan")
    gone(world)
    world.start(worker={"replicas": 2})
    uid = world.queue()["metadata"]["uid"]
    assert {child: world.uid(*child) for child in world.children()} == kept
    for child in kept:
        assert [o["uid"] for o in world.get(*child)["metadata"]["ownerReferences"]] == [uid]
    assert world.get("deployments", "orders-worker")["spec"]["template"] == template
