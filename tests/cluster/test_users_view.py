"""What a user sees with kubectl: get, wait, describe, explain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.harness.cluster import CommandFailed
from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.world import World, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.operator import Operator

pytestmark = pytest.mark.xdist_group("scale")

COLUMNS: Final = [
    "NAME",
    "READY",
    "DUE",
    "SCHEDULED",
    "IN-FLIGHT",
    "DEAD",
    "WORKERS",
    "DESIRED",
    "NEXT-DUE",
    "AGE",
]
WIDE: Final = [
    *COLUMNS[:5],
    "RETRYING",
    *COLUMNS[5:],
    *("REASON", "DEGRADED", "LATENESS", "MIN", "MAX", "REDIS", "PAUSED"),
]


@pytest.fixture(scope="module")
def operator(cluster: Cluster, crd: str) -> Iterator[Operator]:  # noqa: ARG001  the CRD is installed
    with serving(cluster) as operator:
        yield operator


@pytest.fixture
def world(cluster: Cluster, operator: Operator, namespace: str) -> World:
    return World(cluster, operator, namespace)


def rows(table: str) -> list[list[str]]:
    """Columns are two blanks apart or more."""
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]


def test_kubectl_wait_knows_when_it_is_ready(world: World) -> None:
    """kubectl wait returns as soon as the condition is there."""
    world.create()
    world.kubectl("wait", "--for=condition=Degraded=false", "dq/orders", "--timeout=20s")
    with pytest.raises(CommandFailed, match="timed out"):
        world.kubectl("wait", "--for=condition=Ready", "dq/orders", "--timeout=1s")
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.kubectl("wait", "--for=condition=Ready", "dq/orders", "--timeout=20s")


def test_kubectl_get_shows_what_matters(world: World) -> None:
    """A line tells whether the queue is ready, how many workers it has; wide, also why not."""
    world.start(worker={"replicas": 2})
    header, line = rows(world.kubectl("get", "dq"))
    assert header == COLUMNS
    assert line[:2] == ["orders", "False"]
    table = world.kubectl("get", "delayqueues", "-o", "wide")
    header, line = rows(table)
    assert header == WIDE
    assert "ScannersNotReady" in line
    assert "Unknown" in line
    world.pretend_ready("scanner")
    world.pretend_ready("worker")
    world.until("Ready", "True")
    # One worker is enough to be ready. The numbers of tasks are blank while no scanner tells.
    eventually(lambda: rows(world.kubectl("get", "delayqueue"))[1][:4] == ["orders", "True", "2", "2"])
    _, line = rows(world.kubectl("get", "dq", "-o", "wide"))
    assert line[-1] == "True"


def test_kubectl_describe_tells_the_story(world: World) -> None:
    """Conditions in words, and events in their order."""
    world.start()
    world.edit(worker={"replicas": 3})
    world.event("ScaledUp")
    told = world.kubectl("describe", "dq", "orders")
    for words in (
        "No child needs attention.",
        "No scanner answers the operator.",
        "Created",
        "1 → 3 workers: spec.worker.replicas",
        "delayq-operator",
    ):
        assert words in told


def test_events_have_what_people_filter_by(world: World) -> None:
    """kubectl events of the DelayQueue shows type, reason, and who said so."""
    world.start()
    world.event("Created")
    table = world.kubectl("events", "--for=delayqueue/orders")
    assert re.search(r"Normal\s+Created\s+DelayQueue/orders", table)
    (event,) = world.items("events", fieldSelector="reason=Created")
    assert event["source"]["component"] == "delayq-operator"
    assert event["count"] == 1
    assert event["firstTimestamp"]


def test_kubectl_explain_knows_every_field(world: World) -> None:
    """Documentation is where people look for it first, for spec and for status."""
    spec = world.kubectl("explain", "delayqueue.spec")
    for field in ("redis", "handler", "worker", "stopPolicy", "deletionPolicy"):
        assert field in spec
    assert "maxUnavailable" in world.kubectl("explain", "dq.spec.podDisruptionBudget")
    assert "oldestDueTime" in world.kubectl("explain", "dq.status.backlog")


def test_kubectl_reads_the_scale(world: World) -> None:
    """The number that kubectl scale expects is the one there is."""
    world.start(worker={"replicas": 2})
    world.kubectl("scale", "dq/orders", "--replicas=3", "--current-replicas=2")
    world.settle()
    assert world.queue()["status"]["desiredReplicas"] == 3


def test_kubectl_drain_is_not_blocked_for_ever(world: World) -> None:
    """A PodDisruptionBudget lets pods go one by one, also where there is only one."""
    world.start(worker={"replicas": 1})
    world.pretend_ready("worker")
    world.until("Progressing")
    (pod,) = world.pods("worker")
    name = pod["metadata"]["name"]

    def evicted() -> bool:
        try:
            world.cluster.rest.create(
                f"{world.path('pods', name)}/eviction", {"kind": "Eviction", "metadata": {"name": name}}
            )
        except Refused:  # the budget has not counted it yet
            return False
        return True

    eventually(evicted, what="the pod is evicted")
