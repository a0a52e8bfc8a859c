"""What a Redis that cannot serve just now says, under load: LOADING, READONLY, MISCONF, CLUSTERDOWN. All pass by.

OOM is in test_redis_restart.py. Nobody restarts anything but Redis.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from delayq import SyncClient
from delayq.errors import Unavailable

from tests.process.fleet import until
from tests.process.storm import storm
from tests.processes import Gone
from tests.servers import RedisServer
from tests.topologies.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import NewFleet
    from tests.process.storm import Storm


def refused(load: Storm, word: str) -> Unavailable:
    """What a client is told, which must not be tried again for the user without end, and names what Redis said."""
    with SyncClient(load.servers.url, queue=load.fleet.queue, shards=load.shards) as client:
        seen: list[Unavailable] = []

        def says() -> bool:
            try:
                client.schedule(None, delay_ms=0, if_exists="keep", task_id="refused")
            except Unavailable as error:
                seen.append(error)
            return bool(seen) and word in str(seen[-1])

        try:
            until(says, f"a client is told {word}")
        except Gone as gone:
            raise Gone(f"{gone}; the last it was told: {seen[-1:]}") from None
        return seen[-1]


def test_a_primary_that_became_a_replica_takes_nothing_until_it_is_one_again(
    new_fleet: NewFleet, flavour: str, tmp_path: Path
) -> None:
    """READONLY, with one server only: there is nobody else to ask."""
    server = RedisServer.start(flavour, dir=tmp_path / "one", appendonly=True)
    other = RedisServer.start(flavour, dir=tmp_path / "other")
    try:
        with storm(new_fleet, server, replicas=1) as load, server.client() as redis, other.client() as copy:
            copy.replicaof(server.host, server.port)
            until(lambda: len(load.safe.confirmed) > 0, "the replica confirms")
            began = time.time()
            copy.replicaof("NO", "ONE")
            redis.replicaof(other.host, other.port)
            refused(load, "READONLY")
            redis.replicaof("NO", "ONE")
            copy.replicaof(server.host, server.port)
            back = time.time()
            load.resumed(back, "a primary again")
        load.check([began, back])
    finally:
        server.stop()
        other.stop()


def test_a_redis_whose_snapshots_fail_takes_nothing_until_they_do_not(
    new_fleet: NewFleet, flavour: str, tmp_path: Path
) -> None:
    """MISCONF: it has a save point, and nowhere to write to."""
    server = RedisServer.start(flavour, dir=tmp_path / "one", config={"save": "3600 1"})
    try:
        with storm(new_fleet, server, replicas=1) as load, server.client() as redis:
            began = time.time()
            taken = tmp_path / "one" / "dump.rdb"
            taken.mkdir()  # a snapshot cannot take the place of a directory
            redis.bgsave()
            refused(load, "MISCONF")
            taken.rmdir()
            redis.bgsave()
            until(
                lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "ok", "a snapshot is written"
            )
            back = time.time()
            load.resumed(back, "snapshots work again", load.plain)
        load.check([began, back])
        assert load.lost(load.plain) == set()
    finally:
        server.stop()


def test_a_redis_that_loads_its_data_is_waited_for(new_fleet: NewFleet, flavour: str, tmp_path: Path) -> None:
    """LOADING: it is there, and answers everybody with that."""
    server = RedisServer.start(
        flavour, dir=tmp_path / "one", appendonly=True, config={"appendfsync": "always"}
    )
    try:
        with server.client() as redis:
            redis.execute_command("DEBUG", "POPULATE", 50_000, "other")
            redis.bgrewriteaof()
            until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"], "rewritten")
        with storm(new_fleet, server, replicas=1) as load:
            server.kill()
            began = time.time()
            server.config |= {"key-load-delay": "60", "loading-process-events-interval-bytes": "1024"}  # µs
            server.launch(ready="Server initialized|Loading")
            refused(load, "loading the dataset")
            with server.client() as redis:
                redis.config_set("key-load-delay", "0")
            until(lambda: "loading:0" in answer(server), "loaded")
            back = time.time()
            load.resumed(back, "loaded", load.plain)
        load.check([began, back])
        assert load.lost(load.plain) == set()
    finally:
        server.stop()


def answer(server: RedisServer) -> str:
    with server.client() as redis:
        return f"loading:{redis.info('persistence')['loading']}"


@pytest.mark.full
def test_a_cluster_that_wants_all_its_slots_serves_none_without_one(
    new_fleet: NewFleet, flavour: str, tmp_path: Path
) -> None:
    """CLUSTERDOWN: cluster-require-full-coverage is Redis' default, and one missing primary stops everything."""
    cluster = Cluster.start(
        flavour, dir=tmp_path / "cluster", config={"cluster-require-full-coverage": "yes"}, replicas=False
    )
    try:
        with storm(new_fleet, cluster, replicas=1, shards=3) as load:
            first = cluster.serving(load.keys[0].slot)
            victim = next(node for node in cluster.primaries() if node is not first)
            began = time.time()
            victim.pause()
            refused_by_another(load, cluster, victim)
            victim.resume()
            cluster.wait_well()
            back = time.time()
            load.resumed(back, "all slots are served again", load.plain)
        load.check([began, back])
        assert load.lost(load.plain) == set()
    finally:
        cluster.stop()


def refused_by_another(load: Storm, cluster: Cluster, victim: RedisServer) -> None:
    """Until shard 0, on a node that is well, is refused, too: it is asked first."""
    with SyncClient(cluster.url, queue=load.fleet.queue, shards=load.shards) as client:

        def says() -> bool:
            try:
                client.counts()
            except Unavailable as error:
                return "CLUSTERDOWN" in str(error)
            return False

        until(says, "a client is told CLUSTERDOWN")
    assert victim.paused
