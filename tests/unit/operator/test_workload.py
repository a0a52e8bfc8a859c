"""A Deployment's status, read."""

from __future__ import annotations

from typing import Any

import pytest
from delayq_operator.workload import Workload, workload


def deployment(generation: int = 4, **status: object) -> dict[str, Any]:
    return {
        "metadata": {"generation": generation},
        "spec": {
            "replicas": 3,
            "template": {"metadata": {"annotations": {"delayq.dev/checksum": "abc"}}},
        },
        "status": status,
    }


SETTLED = {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}
TIMED_OUT = {
    "type": "Progressing",
    "status": "False",
    "reason": "ProgressDeadlineExceeded",
    "message": "timed out",
}


def test_no_deployment_is_nothing() -> None:
    assert workload(None) == Workload()
    assert not workload(None).exists


def test_a_settled_deployment() -> None:
    found = workload(deployment(**SETTLED))
    assert found == Workload(
        exists=True, wanted=3, pods=3, updated=3, ready=3, current=True, stuck="", inputs="abc"
    )
    assert not found.rolling


@pytest.mark.parametrize(
    "status",
    [
        {},  # its controller has not seen it yet
        SETTLED | {"observedGeneration": 3},
        SETTLED | {"updatedReplicas": 2},
        SETTLED | {"replicas": 4},  # an old one has not gone
    ],
)
def test_a_deployment_rolls_until_all_pods_are_new_and_no_old_one_is_left(status: dict[str, Any]) -> None:
    assert workload(deployment(**status)).rolling


def test_pods_that_do_not_get_ready_are_not_a_rollout() -> None:
    assert not workload(deployment(**SETTLED | {"readyReplicas": 0})).rolling


def test_why_a_rollout_is_stuck() -> None:
    assert workload(deployment(**SETTLED, conditions=[TIMED_OUT])).stuck == "timed out"
    assert workload(deployment(**SETTLED, conditions=[TIMED_OUT | {"message": ""}])).stuck == (
        "ProgressDeadlineExceeded"
    )
    assert workload(deployment(**SETTLED, conditions=[TIMED_OUT | {"status": "True"}])).stuck == ""
    assert workload(deployment(**SETTLED, conditions=[TIMED_OUT | {"type": "Available"}])).stuck == ""


def test_a_deployment_somebody_stripped_of_its_annotations() -> None:
    bare = deployment(**SETTLED)
    bare["spec"]["template"]["metadata"] = {}
    assert workload(bare).inputs == ""
