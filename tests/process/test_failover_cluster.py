"""Primaries of a Cluster are killed, frozen, replaced and relieved of slots under load: all go on by themselves."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.errors import Unavailable

from tests.process.storm import storm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import NewFleet
    from tests.process.storm import Storm
    from tests.topologies.cluster import Cluster

SHARDS = 4


@contextmanager
def loaded(new_fleet: NewFleet, cluster: Cluster) -> Iterator[Storm]:
    with storm(new_fleet, cluster, replicas=1, shards=SHARDS) as load:
        yield load


@pytest.mark.parametrize("how", ["kill", pytest.param("pause", marks=pytest.mark.full)])
def test_a_primary_that_goes_is_followed_by_its_replica(
    new_fleet: NewFleet, cluster: Cluster, how: str
) -> None:
    with loaded(new_fleet, cluster) as load:
        slot = load.keys[0].slot
        old = cluster.serving(slot)
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


def test_a_replica_that_takes_over_when_told_costs_nothing(new_fleet: NewFleet, cluster: Cluster) -> None:
    """As before maintenance: the primary waits until its replica has everything."""
    with loaded(new_fleet, cluster) as load:
        began = time.time()
        for keys in load.keys[:2]:
            cluster.fail_over(keys.slot)
            load.resumed(time.time(), "told to take over")
    load.check([began, time.time()])
    assert load.lost(load.plain) == set()


def test_slots_move_under_load_and_lose_nothing(new_fleet: NewFleet, cluster: Cluster) -> None:
    """Each shard's slot goes to another primary and back, with all that is in it."""
    moves = []
    with loaded(new_fleet, cluster) as load:
        for keys in load.keys:
            home = cluster.serving(keys.slot)
            for target in (next(each for each in cluster.primaries() if each is not home), home):
                moves.append(time.time())
                cluster.move(keys.slot, target)
                load.grown(100)
        load.resumed(time.time(), "slots moved")
    load.check(moves)
    assert load.lost(load.plain) == set()
    assert (load.plain.unsure | load.safe.unsure) == set()


@pytest.mark.full
def test_a_move_that_stops_half_way_is_waited_out(new_fleet: NewFleet, cluster: Cluster) -> None:
    """Some keys here, some there: nothing can be done with that slot for a while, and the others go on."""
    with loaded(new_fleet, cluster) as load:
        slot = load.keys[0].slot
        home = cluster.serving(slot)
        target = next(each for each in cluster.primaries() if each is not home)
        began = time.time()
        cluster.begin_move(slot, target)
        cluster.move_keys(slot, home, target, most=2)
        load.grown(300)
        while cluster.move_keys(slot, home, target):
            pass
        cluster.end_move(slot, target)
        moved = time.time()
        load.resumed(moved, "a move that took its time")
    load.check([began, moved])
    assert load.lost(load.plain) == set()


@pytest.mark.full
def test_slots_without_a_server_delay_only_their_own_tasks(new_fleet: NewFleet, cluster: Cluster) -> None:
    """Primary and replica gone: its shards say so, the others go on, and all is as before when they are back."""
    with loaded(new_fleet, cluster) as load:
        slot = load.keys[0].slot
        primary = cluster.serving(slot)
        replica = cluster.replica_of(primary)
        rest = [keys.shard for keys in load.keys if cluster.serving(keys.slot) is not primary]
        failed = time.time()
        replica.kill()
        primary.pause()
        with SyncClient(cluster.url, queue=load.fleet.queue, shards=SHARDS) as client:
            with pytest.raises(Unavailable):
                client.counts()
            load.grown(50)
        assert rest
        primary.resume()
        back = time.time()
        replica.restart()
        load.resumed(back, "both are back")
    load.check([failed, back])
