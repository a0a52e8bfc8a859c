"""The number of workers follows the work: real scanners and workers, the real controller manager, the real operator."""

from __future__ import annotations

import re
import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from delayq.scaling import replayed, sentence
from delayq.scaling.policy import LEAD_SECONDS
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.scaled import Scaled

if TYPE_CHECKING:
    from tests.cluster.world import World
    from tests.servers import RedisServer


LATE_SECONDS = 10
"""Three workers that start at once on a busy machine take longer than the one before that has taught how long."""


@pytest.mark.usefixtures("process_node")
def test_workers_are_there_before_the_work_falls_due_and_go_when_it_is_done(
    world: World, redis: RedisServer
) -> None:
    """From zero and back; status tells when they will start; each change has an event that can be replayed."""
    orders = Scaled(world, redis)
    world.until("ScalingActive", "True", "ValidMetricFound", timeout_s=40)
    orders.until_replicas(0)
    lead = orders.told("leadTimeSeconds")
    world.until("Ready", "True", timeout_s=40)
    before = len(orders.events("ScaledUp"))
    with world.numbers("deployments", "orders-worker", "spec", "replicas") as seen:
        due = time.time() + lead + 25
        ids = orders.schedule(3, lead + 25, "quick") | orders.schedule(3, lead + 25, "slow")
        wake = datetime.fromisoformat(orders.told("wakeTime")).timestamp()
        assert abs(wake - (due - lead - 4)) < 8
        orders.until_done(ids)
        orders.until_replicas(0)
    assert seen[0] > 0
    first = orders.events("ScaledUp")[before]
    asked = replayed(first["metadata"]["annotations"][names.DECISION])
    # wakeTime is told for one start. Three workers are brought sooner where only a single start has been learnt from.
    assert -LEAD_SECONDS - 3 < asked.at - wake < LATE_SECONDS
    assert asked.at < due
    began = orders.hash("began")
    assert max(float(began[each]) - due for each in ids) < LATE_SECONDS
    for event in orders.events():
        record = event["metadata"]["annotations"][names.DECISION]
        assert sentence(replayed(record)) == event["message"]
    world.until("Ready", "True", timeout_s=40)
    metric = partial(world.operator.metric, namespace=world.namespace, name="orders")
    assert metric("delayq_operator_worker_lead_seconds") == pytest.approx(
        orders.told("leadTimeSeconds"), abs=1
    )
    assert metric("delayq_operator_worker_handler_seconds") > 0
    a_worker_stays_while_it_holds_a_lease(orders, world)


def a_worker_stays_while_it_holds_a_lease(orders: Scaled, world: World) -> None:
    """However long a handler takes, and though nothing else is due: the task is begun once."""
    world.edit(autoscaling={"cooldownSeconds": 0})
    eventually(lambda: not world.pods("worker"), timeout_s=60, what="no worker is left that could claim")
    ids = orders.schedule(1, 0, gate=True)
    eventually(lambda: orders.hash("at"), timeout_s=60, what="the task runs")
    decisions = "delayq_operator_decision_seconds_count"
    with world.numbers("deployments", "orders-worker", "spec", "replicas") as seen:
        before = world.operator.metric(decisions)
        more = partial(world.operator.metric, decisions)
        eventually(lambda: more() >= before + 5, timeout_s=60, what="five decisions")
        # One arrival counts as a rate for a moment, so two workers may have been asked for; never none.
        assert 0 not in seen, [each["message"] for each in orders.events()][-2:]
        orders.open()
        orders.until_done(ids)
        orders.until_replicas(0)
    assert seen[-1] == 0
    assert {orders.hash("attempts")[each] for each in ids} == {"1"}


@pytest.mark.full
@pytest.mark.usefixtures("process_node")
def test_due_tasks_are_weighed_by_the_handler_time_of_their_kind(world: World, redis: RedisServer) -> None:
    """Workers are not removed: the operator would miss the handler times of one that ends before the next scrape."""
    orders = Scaled(world, redis, behavior={"scaleDown": {"stabilizationWindowSeconds": 600}})
    world.until("ScalingActive", "True", "ValidMetricFound", timeout_s=40)
    lead = orders.told("leadTimeSeconds")
    ids = orders.schedule(3, lead + 25, "quick") | orders.schedule(3, lead + 25, "slow")
    orders.until_done(ids)
    # Until these are near, the operator has learnt that the two kinds differ.
    orders.until_done(orders.schedule(12, orders.told("leadTimeSeconds") + 15, "slow"))
    found = [each["message"] for each in orders.events()]
    slow = r"slots of 1(\.\d+)? s a task \(weighted by kind\)"
    assert [each for each in found if re.search(slow, each)], found
