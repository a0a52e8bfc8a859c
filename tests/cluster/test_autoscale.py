"""The number of workers follows the work: real scanners and workers, the real controller manager, the real operator."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from delayq.scaling import replayed, sentence
from delayq_operator import names

from tests.cluster.operator import Operator, install_rights
from tests.cluster.scaled import Scaled
from tests.servers import PREFERRED, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.xdist_group("autoscale")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(PREFERRED, dir=tmp_path / "redis", appendonly=True)
    yield server
    server.stop()


@pytest.fixture
def operator(cluster: Cluster, crd: str, namespace: str) -> Iterator[Operator]:  # noqa: ARG001  the CRD is installed
    operator = Operator.start(install_rights(cluster, namespace), namespace).wait_ready()
    yield operator
    operator.process.stop()


@pytest.mark.usefixtures("operator", "process_node")
def test_workers_are_there_before_the_work_falls_due_and_go_when_it_is_done(
    cluster: Cluster, namespace: str, redis: RedisServer
) -> None:
    """From zero and back; status tells when they will start; each change has an event that can be replayed."""
    orders = Scaled.of(cluster, namespace, redis)
    orders.until("ScalingActive", "True", "FollowsWork")
    orders.until_replicas(0, timeout_s=60)
    lead = orders.until_told("leadSeconds")
    orders.until("Ready", "True")
    ids = orders.schedule(6, lead + 25)
    due = time.time() + lead + 25
    wake = datetime.fromisoformat(orders.until_told("wakeTime")).timestamp()
    assert abs(wake - (due - lead - 4)) < 8
    with orders.numbers() as seen:
        orders.until_done(ids)
        orders.until_replicas(0)
    assert seen[0] > 0
    assert max(orders.began(each) - due for each in ids) < 1
    assert not orders.redis.client().exists("late")
    for event in orders.events():
        record = event["metadata"]["annotations"][names.DECISION]
        assert sentence(replayed(record)) == event["message"]
    orders.until("Ready", "True")
