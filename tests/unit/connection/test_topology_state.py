"""The error for an unknown master, as callers see it."""

from __future__ import annotations

from delayq.connection import Address
from delayq.connection.topology_state import ClusterTopology, no_master
from delayq.errors import Unavailable

CLUSTER = Address.from_url("redis+cluster://a:7000")


def test_a_cluster_without_slots_was_reached() -> None:
    topology = ClusterTopology(CLUSTER)
    topology.begin()
    topology.learn(CLUSTER.places[0], [b"cluster_state:fail\r\ncluster_current_epoch:0\r\n", []])
    topology.settle()
    error = no_master(CLUSTER, topology, None)
    assert isinstance(error, Unavailable)
    assert (error.answered, error.outage) == (True, "cluster_down")
    assert str(error).endswith("does not serve (CLUSTERDOWN no node serves the slot)")


def test_a_cluster_that_nobody_told_of_is_not_known() -> None:
    refused = Unavailable("a:7000", "connection refused", outage="refused")
    error = no_master(CLUSTER, ClusterTopology(CLUSTER), refused)
    assert (str(error), getattr(error, "outage", "")) == (
        "cannot reach Redis at cluster at a:7000 (connection refused)",
        "refused",
    )
