"""PodMonitors and PrometheusRules: where the Prometheus operator is installed, whenever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.chart import serve_no_prometheus_kinds, serve_prometheus_kinds
from tests.cluster.harness.waiting import eventually
from tests.cluster.world import World, installed, running, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster

pytestmark = pytest.mark.xdist_group("reconcile")

MONITORS: Final = {("podmonitors", "orders-delayq"), ("prometheusrules", "orders-delayq")}
MONITORING: Final = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}


@pytest.fixture(autouse=True)
def no_monitors(cluster: Cluster) -> Iterator[None]:
    """A cluster without the Prometheus operator, before and after."""
    serve_no_prometheus_kinds(cluster)
    yield
    serve_no_prometheus_kinds(cluster)


def test_monitors_come_when_their_kinds_do(cluster: Cluster, crd: str, namespace: str) -> None:  # noqa: ARG001
    """Without the Prometheus operator monitors are no error; once it is installed they appear, without a restart."""
    with serving(cluster, "--resync-seconds=2") as operator:
        world = World(cluster, operator, namespace)
        world.start(monitoring=MONITORING)
        assert not world.children() & MONITORS
        assert world.until("Degraded", "False", "AsExpected")
        assert "PodMonitor, PrometheusRule." in world.until("Accepted", "True")["message"]
        serve_prometheus_kinds(cluster)
        eventually(lambda: world.children() >= MONITORS, what="monitors")
        eventually(lambda: "Monitor" not in world.until("Accepted", "True")["message"])
        world.delete("podmonitors", "orders-delayq")
        eventually(lambda: world.there("podmonitors", "orders-delayq"), timeout_s=5, what="it is repaired")
        world.edit(monitoring=None)
        eventually(lambda: not world.children() & MONITORS, what="monitors go when they are not wanted")


def test_a_restart_writes_nothing(cluster: Cluster, crd: str, namespace: str) -> None:  # noqa: ARG001
    """An operator that starts and finds everything as it should be, monitors too, leaves it alone."""
    serve_prometheus_kinds(cluster)
    with installed(cluster) as start:
        with running(start()) as operator:
            world = World(cluster, operator, namespace)
            world.start(monitoring=MONITORING, reaper={"suspend": True})  # its runs are news
            assert world.children() >= MONITORS
            eventually(lambda: world.events("Created"), what="they were told of")  # behind all else
        mark = world.enqueue()
        with running(start()) as operator:
            world.operator = operator
            world.create("barrier", monitoring=MONITORING)
            eventually(lambda: world.there("prometheusrules", "barrier-delayq"))
            world.settle("barrier")
            world.nudge()
    assert [words for words in world.written(mark) if "orders" in words] == []
    assert len(world.events("Created")) == 1
