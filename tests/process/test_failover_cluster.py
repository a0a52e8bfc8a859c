"""Primaries of a Cluster are killed, frozen, replaced and relieved of slots under load: all go on by themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.process.storm import storm

if TYPE_CHECKING:
    from tests.process.fleet import NewFleet
    from tests.topologies.cluster import Cluster

SHARDS = 4


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
def test_a_primary_that_goes_is_followed_by_its_replica(
    new_fleet: NewFleet, cluster: Cluster, how: str
) -> None:
    with storm(new_fleet, cluster, replicas=1, shards=SHARDS) as load:
        old = cluster.serving(load.keys[0].slot)
        replica = cluster.replica_of(old)
        failed = time.time()
        getattr(old, how)()
        cluster.wait_promoted(replica)
        promoted = time.time()
        print(f"{how}: promoted after {promoted - failed:.2f} s")
        load.resumed(promoted, how, load.plain)
        old.restart() if how == "kill" else old.resume()
        back = time.time()
        load.resumed(back, "with its replica")
    load.check([failed, back])


def test_slots_that_move_and_manual_fail_overs_cost_nothing(new_fleet: NewFleet, cluster: Cluster) -> None:
    """As before maintenance: each shard's slot goes to another primary and back, with all that is in it."""
    changes = []
    with storm(new_fleet, cluster, replicas=1, shards=SHARDS) as load:
        for keys in load.keys:
            home = cluster.serving(keys.slot)
            for target in (next(each for each in cluster.primaries() if each is not home), home):
                changes.append(time.time())
                cluster.move(keys.slot, target)
                load.fleet.wait_more(100)
        load.resumed(time.time(), "slots moved")
        assert (load.plain.unsure | load.safe.unsure) == set()
        for keys in load.keys[:2]:
            changes.append(time.time())
            cluster.fail_over(keys.slot)
            load.resumed(time.time(), "manual fail-over")
    load.check(changes)
    assert load.lost(load.plain) == set()
