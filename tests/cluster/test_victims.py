"""When there are to be fewer workers, those go that have nothing to do: on the real controller manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names

from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.waiting import eventually
from tests.cluster.scaled import Scaled

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster
    from tests.servers import RedisServer

pytestmark = pytest.mark.xdist_group("autoscale")


@pytest.mark.usefixtures("operator", "process_node")
def test_the_idle_workers_go_and_the_busy_ones_stay(
    cluster: Cluster, namespace: str, redis: RedisServer
) -> None:
    """Five workers, two of them with a long task each, are to be two: nothing is interrupted."""
    orders = Scaled.of(cluster, namespace, redis, concurrency=1, minReplicas=5, maxReplicas=5)
    eventually(lambda: len(orders.workers(ready=True)) == 5, timeout_s=60, what="five workers")
    ids = orders.schedule(2, 0, gate=True)
    eventually(lambda: len(orders.at_work()) == 2, what="both tasks run")
    busy = set(orders.at_work().values())
    assert len(busy) == 2
    idle = {pod["metadata"]["name"] for pod in orders.workers()} - busy
    assert isinstance(cluster, ControlPlane)
    mark = cluster.audit_mark()
    orders.edit(autoscaling={"minReplicas": 2, "maxReplicas": 2})
    eventually(lambda: len(orders.workers()) == 2, timeout_s=60, what="fewer workers")
    left = {pod["metadata"]["name"]: pod for pod in orders.workers()}
    assert left.keys() == busy
    for pod in left.values():
        assert names.DELETION_COST not in pod["metadata"].get("annotations", {})
    written = [
        event.name
        for event in cluster.audit_events(mark)
        if (event.resource, event.verb, event.namespace) == ("pods", "patch", namespace)
        and event.user.endswith(":delayq-operator")
    ]
    assert sorted(written) == sorted(idle), "one write for each that goes, and none for those that stay"
    orders.open()
    orders.until_done(ids)
    assert orders.attempts() == dict.fromkeys(ids, 1)


@pytest.mark.usefixtures("operator", "process_node")
def test_a_cost_that_somebody_else_has_set_is_theirs(
    cluster: Cluster, namespace: str, redis: RedisServer
) -> None:
    """And it counts: the other one goes."""
    orders = Scaled.of(cluster, namespace, redis, minReplicas=2, maxReplicas=2)
    eventually(lambda: len(orders.workers(ready=True)) == 2, timeout_s=60, what="two workers")
    dear = orders.workers()[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods/{dear}"
    cluster.rest.patch(path, {"metadata": {"annotations": {names.DELETION_COST: "1000"}}})
    orders.edit(autoscaling={"minReplicas": 1, "maxReplicas": 1})
    eventually(lambda: [pod["metadata"]["name"] for pod in orders.workers()] == [dear], timeout_s=60)
    assert cluster.rest.get(path)["metadata"]["annotations"][names.DELETION_COST] == "1000"
