"""A Deployment's status, read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from delayq_operator.cache.workload import podless_run_seconds, podless_seconds, workload


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
RUN = {"kind": "Job", "name": "orders-reaper-29000000"}
TIMED_OUT = {
    "type": "Progressing",
    "status": "False",
    "reason": "ProgressDeadlineExceeded",
    "message": "timed out",
}


@pytest.mark.parametrize(
    ("status", "rolls"),
    [
        (SETTLED | {"readyReplicas": 0}, False),
        ({}, True),  # its controller has not seen it yet
        (SETTLED | {"observedGeneration": 3}, True),
        (SETTLED | {"updatedReplicas": 2}, True),
        (SETTLED | {"replicas": 4}, True),  # an old one has not gone
    ],
)
def test_a_deployment_rolls_until_all_pods_are_new_and_no_old_one_is_left(
    status: dict[str, Any], *, rolls: bool
) -> None:
    assert workload(deployment(**status)).rolling is rolls


def test_why_a_rollout_is_stuck_or_its_pods_are_rejected() -> None:
    """A rejection without the name of the pod: it stays the same although each attempt has another."""
    changes: tuple[dict[str, str], ...] = ({}, {"message": ""}, {"status": "True"}, {"type": "Available"})
    found = [workload(deployment(**SETTLED, conditions=[TIMED_OUT | change])) for change in changes]
    assert [each.stuck for each in found] == ["timed out", "ProgressDeadlineExceeded", "", ""]

    why = "exceeded quota: compute, requested: pods=1"
    failing = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    for message in (f'pods "orders-worker-5d9f-x7k2p" is forbidden: {why}', why):
        assert workload(deployment(**SETTLED, conditions=[failing | {"message": message}])).refused == why


STARTED = {"startTime": "2026-01-01T00:00:00Z"}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("spec", "status", "seconds"),
    [
        ({}, STARTED, 20.0),
        ({}, STARTED | {"conditions": [{"type": "Failed", "status": "True"}]}, 20.0),
        ({}, {}, None),  # its controller has not seen it yet
        ({"suspend": True}, STARTED, None),
        ({}, STARTED | {"active": 1}, None),
        ({}, STARTED | COMPLETE, None),
    ],
)
def test_a_job_without_any_pod(spec: dict[str, Any], status: dict[str, Any], seconds: float | None) -> None:
    now = datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC).timestamp()
    assert podless_seconds({"spec": spec, "status": status}, now) == seconds


@pytest.mark.parametrize(
    ("spec", "newest", "active", "seconds"),
    [
        ({}, "", [RUN], 20.0),
        ({}, "2025-12-31T23:59:00Z", [RUN], 20.0),
        ({}, "2026-01-01T00:00:00Z", [RUN], None),  # its pod may have ended well, and be forgotten
        ({}, "", [], None),  # it has ended, or was deleted
        ({"suspend": True}, "", [RUN], None),
    ],
)
def test_a_run_of_the_reaper_without_a_pod(
    spec: dict[str, Any], newest: str, active: list[dict[str, str]], seconds: float | None
) -> None:
    now = datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC).timestamp()
    status = {"lastScheduleTime": "2026-01-01T00:00:00Z", "active": active}
    assert podless_run_seconds({"spec": spec, "status": status}, newest, now) == seconds
