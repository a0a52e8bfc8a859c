"""Why a pod does not work, in the words of Kubernetes and in its own last ones."""

from __future__ import annotations

from typing import Any

import pytest
from delayq_operator.base import names
from delayq_operator.cache.pod import LONGEST_WORDS, read

IMAGE = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
RUNNING: dict[str, Any] = {"state": {"running": {}}}
CRASHED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}},
    "lastState": {"terminated": {"reason": "Error", "message": "error: cannot import\n  shop.orders\n"}},
}
RESTARTED = RUNNING | {"lastState": {"terminated": {"reason": "OOMKilled"}}}
OUT_OF_MEMORY = "OOMKilled: it took more memory than its limit"
LOG = '{"time": "2026-01-01T00:00:00", "event": "started"}\n'
OURS = RUNNING | {"name": "worker", "ready": True, "started": True}
PROXY = RUNNING | {"name": "proxy", "ready": False}
DONE = {"state": {"terminated": {"reason": "Completed"}}}
FAILED = {
    "state": {"terminated": {"reason": "Error", "message": "error: cannot reach Redis at redis:6379\n"}}
}
UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes have cpu",
}


def pod(*containers: dict[str, Any], ready: bool = False, **status: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", ())]
    return {
        "metadata": {"name": "w-1", "namespace": "shop", "labels": {names.COMPONENT_LABEL: "worker"}},
        "status": {"conditions": conditions, "containerStatuses": list(containers), **status},
    }


def ended(code: int, log: str, reason: str = "Error") -> dict[str, Any]:
    """A container that waits to be started again, and the end of whose log is its message."""
    last = {"terminated": {"reason": reason, "exitCode": code, "message": log}}
    return {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": last}


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        (pod(RESTARTED, ready=True), ""),
        (pod(CREATING), ""),
        (pod(DONE), ""),
        (pod(FAILED), "w-1: Error: cannot reach Redis at redis:6379"),
        (pod(RUNNING, IMAGE), "w-1: ImagePullBackOff: no such image"),
        (pod(RESTARTED), f"w-1: {OUT_OF_MEMORY}"),
        (pod(ended(137, LOG, reason="OOMKilled")), f"w-1: CrashLoopBackOff: {OUT_OF_MEMORY}"),
        (pod(ended(137, LOG)), "w-1: CrashLoopBackOff: killed by SIGKILL"),
        (
            pod(ended(3, LOG + "error: no shop\n  look here\n")),
            "w-1: CrashLoopBackOff: no shop look here",
        ),
        (pod(ended(1, LOG + LOG)), f"w-1: CrashLoopBackOff: {LOG.strip()}"),
        (pod(ended(1, "x" * 5000)), f"w-1: CrashLoopBackOff: {'x' * 5000}"[:LONGEST_WORDS]),
        (pod(conditions=[UNSCHEDULED]), "w-1: Unschedulable: 0/3 nodes have cpu"),
        (
            pod(conditions=[{**UNSCHEDULED, "message": "no preemption victims found for incoming pod."}]),
            "w-1: Unschedulable: no preemption victims found for incoming pod",
        ),
        (
            pod(CREATING, initContainerStatuses=[CRASHED]),
            "w-1: CrashLoopBackOff: cannot import shop.orders",
        ),
    ],
)
def test_what_is_wrong_with_a_pod(body: dict[str, Any], trouble: str) -> None:
    assert read(body).trouble == trouble


@pytest.mark.parametrize(
    ("body", "waiting"),
    [
        (pod(OURS, ready=True), ""),
        (pod(CREATING), ""),
        (pod(OURS | {"ready": False, "started": False}), "w-1 is starting"),
        (
            pod(OURS | {"ready": False}),
            "w-1 runs and waits for Redis, a Secret, memory or threads, or a handler blocks its event loop: see",
        ),
        (pod(OURS, PROXY), "w-1: container proxy runs and is not ready"),
    ],
)
def test_what_a_running_pod_waits_for(body: dict[str, Any], waiting: str) -> None:
    assert read(body).waiting[: len(waiting) or None] == waiting


def test_only_a_worker_has_handlers() -> None:
    scanner = pod(OURS | {"name": "scanner", "ready": False})
    scanner["metadata"]["labels"][names.COMPONENT_LABEL] = "scanner"
    assert read(scanner).waiting == "w-1 runs and waits for Redis or for a Secret; see kubectl logs w-1"


def test_a_pod_whose_node_is_gone_may_still_work() -> None:
    """Kubernetes takes Ready away from its pods, and nothing else: it cannot know."""
    lost = pod(RUNNING, conditions=[{"type": "ContainersReady", "status": "True"}])
    assert read(lost).trouble.startswith("w-1: NodeNotReady: the kubelet of its node does not report")
    gated = lost | {"spec": {"readinessGates": [{"conditionType": "mesh"}]}}
    assert read(gated).trouble == ""


def test_how_a_pod_comes_and_leaves() -> None:
    made, leaving = pod(), pod(RUNNING, ready=True, podIP="10.0.0.1")
    made["status"] = {}
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen = [read(each) for each in (made, leaving, pod(phase="Failed"))]
    assert [(each.address, each.leaving, each.failed, each.trouble) for each in seen] == [
        *(("", False, False, ""), ("10.0.0.1", True, False, ""), ("", False, True, ""))
    ]
