"""When there are to be fewer workers, those go that have nothing to do: on the real controller manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.scaled import Scaled

if TYPE_CHECKING:
    from tests.cluster.world import World
    from tests.servers import RedisServer


@pytest.mark.usefixtures("process_node")
def test_the_idle_workers_go_and_the_busy_ones_stay(world: World, redis: RedisServer) -> None:
    """Five workers, two of them with a long task each, are to be two: nothing is interrupted."""
    orders = Scaled(world, redis, concurrency=1, minReplicas=5, maxReplicas=5)
    eventually(lambda: len(orders.workers(ready=True)) == 5, timeout_s=60, what="five workers")
    ids = orders.schedule(2, 0, gate=True)
    eventually(lambda: len(orders.hash("at")) == 2, what="both tasks run")
    busy = set(orders.hash("at").values())
    assert len(busy) == 2
    idle = {pod["metadata"]["name"] for pod in orders.workers()} - busy
    mark = world.enqueue()
    world.edit(autoscaling={"minReplicas": 2, "maxReplicas": 2})
    eventually(lambda: len(orders.workers()) == 2, timeout_s=60, what="fewer workers")
    left = {pod["metadata"]["name"]: pod for pod in orders.workers()}
    assert left.keys() == busy
    for pod in left.values():
        assert names.DELETION_COST not in pod["metadata"].get("annotations", {})
    written = [words for words in world.written(mark) if words.startswith("patch pods/")]
    assert sorted(written) == [f"patch pods/{name}" for name in sorted(idle)], "none for those that stay"
    orders.open()
    orders.until_done(ids)
    assert orders.hash("attempts") == dict.fromkeys(ids, "1")
    # A cost that somebody else has set is theirs, and counts: the other one goes.
    dear = orders.workers()[0]["metadata"]["name"]
    world.patch("pods", dear, {"metadata": {"annotations": {names.DELETION_COST: "1000"}}})
    world.edit(autoscaling={"minReplicas": 1, "maxReplicas": 1})
    eventually(lambda: [pod["metadata"]["name"] for pod in orders.workers()] == [dear], timeout_s=60)
    assert world.get("pods", dear)["metadata"]["annotations"][names.DELETION_COST] == "1000"
