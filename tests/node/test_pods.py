"""The pods of a queue as the kubelet runs them: locked down, and telling in words that help why one does not start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.harness.resources import delayqueues, found
from tests.cluster.harness.waiting import eventually
from tests.node.world import CODE, READY_SECONDS

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Object
    from tests.node.harness.node import Node
    from tests.node.release import Release
    from tests.node.world import NodeWorld

SMOKE = "delayq-test"
USER = "65532"
NO_RIGHTS = "0000000000000000"
FILTERED = "2"
"""What the kernel calls seccomp with a filter."""
TOKEN = "run/secrets/kubernetes.io/serviceaccount"  # noqa: S105  where one would be


def test_helm_test_sees_a_task_handled(operator: Release) -> None:
    """In another namespace than the operator's, with a copy of the Secret that Redis takes; then nothing is left."""
    lines = operator.test().splitlines()
    assert f"created DelayQueue default/{SMOKE}" in lines, lines
    assert [line for line in lines if line.startswith("handled, at most")], lines
    assert lines[lines.index("passed") - 1] == "deleted it; nothing of it is left"
    cluster = operator.node.cluster
    assert not found(cluster, f"{delayqueues('default')}/{SMOKE}")
    eventually(lambda: not cluster.rest.items("/api/v1/namespaces/default/secrets"), what="the copy is gone")
    left = (
        "get",
        "pod,sa,cm,role,rolebinding",
        "-A",
        "--selector=app.kubernetes.io/component=test",
        "-o",
        "name",
    )
    assert cluster.kubectl(*left).stdout == f"pod/{SMOKE}\n", "to look at"
    with operator.redis.client() as connection:
        # What says for a week that the queue was erased is no key of a queue.
        assert [key for key in connection.keys("*") if connection.ttl(key) == -1] == []


def test_a_handler_that_cannot_be_imported_and_an_image_that_is_not_there_are_reported(
    world: NodeWorld,
) -> None:
    """The container crashes over and over; the condition has its words, and none of Kubernetes' alone.

    A correction is enough. No worker goes before the new one is ready: with a wrong image the old one goes on.
    """
    world.make_code("import no_such_shop\n")
    world.begin(wait="", worker={"replicas": 1})
    world.reported("CrashLoopBackOff", "No module named 'no_such_shop'")
    world.event("PodsFailing", "No module named 'no_such_shop'")
    ready = world.until("Ready", "False", "WorkersNotReady")
    assert "No worker is ready, of 1." in ready["message"]
    assert "No module named 'no_such_shop'" in ready["message"]
    world.patch("configmaps", "code", {"data": {"recorder.py": CODE}})
    world.recovered(1)
    (old,) = world.wait_running(1)
    world.edit(worker={"image": "localhost/delayq-worker:mistyped"})
    world.reported("ImagePullBackOff", "localhost/delayq-worker:mistyped")
    world.event("PodsFailing", "localhost/delayq-worker:mistyped")
    world.until("Ready", "True")
    world.schedule({f"t{nth}": None for nth in range(20)})
    world.account()
    assert {entry.pod for entry in world.ledger} == {old["metadata"]["name"]}
    world.edit(worker={"image": None})
    world.recovered(1)
    assert world.wait_running(1)[0]["metadata"]["uid"] == old["metadata"]["uid"]


def status(pid: int) -> dict[str, str]:
    """/proc/<pid>/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def mounts(pid: int) -> dict[str, list[str]]:
    """Mount points of a process, and their options."""
    rows = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return {row[4]: row[5].split(",") for row in rows}


def check_locked_down(node: Node, pod: Object) -> None:
    """By what the kernel says of its processes, not by what its spec does."""
    pids = node.pids(pod)
    assert pids, pod["metadata"]["name"]
    for pid in pids:
        seen = status(pid)
        assert set(seen["Uid"].split()) == {USER}
        assert set(seen["Gid"].split()) == {USER}
        capabilities = {kind: seen[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        assert set(capabilities.values()) == {NO_RIGHTS}, capabilities
        assert (seen["NoNewPrivs"], seen["Seccomp"]) == ("1", FILTERED)
        writable = {point for point, options in mounts(pid).items() if "rw" in options}
        kernels = {point for point in writable if point.startswith(("/proc", "/dev", "/sys"))}
        assert writable - kernels <= {"/tmp", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}  # noqa: S108
        assert "ro" in mounts(pid)["/"]


@pytest.fixture
def reaper(world: NodeWorld) -> Any:  # noqa: ANN401  called when the CronJob is there
    """Starts a run of the reaper now that does not end after one pass."""

    def start() -> Object:
        job = world.get("cronjobs", "orders-reaper")["spec"]["jobTemplate"]
        job["spec"]["template"]["spec"]["containers"][0]["command"] += ["--for", "0s"]
        path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
        world.cluster.rest.create(path, {**job, "metadata": {**job["metadata"], "name": "now"}})

        def runs() -> Object | None:
            pods = world.items("pods", labelSelector="job-name=now")
            return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)

        found = eventually(runs, timeout_s=READY_SECONDS, what="the reaper runs")
        assert found is not None
        return found

    return start


def test_no_process_of_a_queue_may_do_more_than_it_has_to(world: NodeWorld, reaper: Any) -> None:  # noqa: ANN401
    """Not root, no capability, seccomp, a file system that is read-only, and no token for the API server.

    So the namespace may enforce the strictest Pod Security Standard.
    """
    strictest = "pod-security.kubernetes.io/enforce=restricted"
    world.kubectl("label", "namespace", world.namespace, strictest)
    world.begin(worker={"replicas": 1})
    pods = [*world.wait_running(1), *world.running("scanner"), reaper()]
    for pod in pods:
        check_locked_down(world.node, pod)
        for pid in world.node.pids(pod):
            assert TOKEN not in "".join(mounts(pid))
    check_locked_down(world.node, world.operator.pod)
    world.schedule({"t": None})
    world.account()
