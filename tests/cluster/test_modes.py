"""Kinds of monitors that come and go while the operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator
from tests.cluster.prometheus import serve_no_prometheus_kinds, serve_prometheus_kinds
from tests.cluster.world import RECONCILES, World, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane


MONITORING: Final = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
MONITORS: Final = {("podmonitors", "orders-delayq"), ("prometheusrules", "orders-delayq")}


@pytest.mark.usefixtures("monitors")
def test_monitors_come_and_go_with_their_kinds(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Lists notice kinds that are removed; without them monitors are no error; they appear without a restart.

    And an operator that starts and finds everything as it should be, monitors too, leaves it alone.
    """
    args = ("--list-seconds=2", "--no-leader-election")
    with running(Operator.fork(kubeconfig, namespace, *args)) as operator:
        world = World(cluster, operator, namespace)
        world.start(monitoring=MONITORING, reaper={"suspend": True})  # its runs are news
        eventually(lambda: world.children() >= MONITORS, what="monitors")
        serve_no_prometheus_kinds(cluster)
        for kind in (names.POD_MONITOR, names.PROMETHEUS_RULE):
            operator.process.wait_line(f"kind_unserved.*{kind.kind}")
        errors = operator.metric(RECONCILES, result="error")
        world.edit(worker={"replicas": 3})
        world.settle()
        world.until("Degraded", "False", "AsExpected")
        assert operator.metric(RECONCILES, result="error") == errors
        assert "PodMonitor, PrometheusRule." in world.until("Accepted", "True")["message"]
        serve_prometheus_kinds(cluster)
        eventually(lambda: world.children() >= MONITORS, what="monitors")
        eventually(lambda: "Monitor" not in world.until("Accepted", "True")["message"])
        world.delete("podmonitors", "orders-delayq")
        eventually(lambda: world.there("podmonitors", "orders-delayq"), timeout_s=5, what="it is repaired")
        world.event("Repaired", "orders-delayq")  # which is behind all else
    mark, created = world.enqueue(), world.events("Created")
    with running(Operator.fork(kubeconfig, namespace, *args)) as world.operator:
        world.create("barrier", monitoring=MONITORING)
        eventually(lambda: world.there("prometheusrules", "barrier-delayq"))
        world.settle("barrier")
        world.nudge()
        assert [words for words in world.written(mark) if "orders" in words] == []
        assert world.events("Created") == created
        world.edit(monitoring=None)
        eventually(lambda: not world.children() & MONITORS, what="monitors go when they are not wanted")
